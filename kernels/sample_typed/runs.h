// runs.h: where the in-neighbours of a node by edges of one type lie: a run.
//
// Two indexes of runs, under one interface:
//   prefetch(node)               what visit() reads
//   num_runs(node)               at most
//   visit(node, add)             add(type, start, degree) for its runs, in ascending order of type
//   follow(node, position)       the position in `indices` of a position in a run
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/prefetch.h"

namespace lg {

// What index_edge_types() made: runs that are not empty. For graphs of very many edge types.
template <class Index>
struct SparseRuns {
  static constexpr bool kFollows = true;

  const Csc<Index>& graph;
  const int64_t* run_ptr;
  const int32_t* run_type;
  const uint32_t* run_end;  // counted from the node's first edge
  const uint32_t* order;    // null: the edges are sorted by type

  LG_PREFETCHES void prefetch(int64_t node) const {
    prefetch_degree(graph, node);
    __builtin_prefetch(&run_ptr[node]);
    __builtin_prefetch(&run_ptr[node + 1]);
  }

  int64_t num_runs(int64_t node) const { return run_ptr[node + 1] - run_ptr[node]; }

  template <class Add>
  void visit(int64_t node, const Add& add) const {
    const int64_t first_edge = graph.indptr[node];
    if (order) __builtin_prefetch(&order[first_edge]);
    uint32_t begin = 0;
    for (int64_t r = run_ptr[node]; r < run_ptr[node + 1]; ++r) {
      add(run_type[r], first_edge + begin, run_end[r] - begin);
      begin = run_end[r];
    }
  }

  bool follows() const { return order != nullptr; }
  int64_t follow(int64_t node, int64_t position) const {
    return graph.indptr[node] + order[position];
  }
};

// Nodes of a type have consecutive ids, and each a run for every slot, an edge type that ends there: so one
// read of consecutive entries of `run_ptr` tells them all.
template <class Offset>
struct DenseRuns {
  static constexpr bool kFollows = false;

  const Offset* run_ptr;      // [R + 1]
  const int64_t* first_node;  // [T + 1], by node type
  const int64_t* first_run;   // [T + 1]
  const int64_t* slot_ptr;    // [T + 1]
  const int32_t* slot_type;   // [K]
  int64_t num_node_types;
  int64_t most_slots;  // of a type

  // The last type that begins at the node or before: empty types begin where the next one does.
  int64_t type_of(int64_t node) const {
    const int64_t* first = first_node;
    for (int64_t left = num_node_types; left > 1;) {
      const int64_t half = left / 2;
      first += first[half] <= node ? half : 0;
      left -= half;
    }
    return first - first_node;
  }

  const Offset* runs_of(int64_t node, int64_t type) const {
    return run_ptr + first_run[type] +
           (node - first_node[type]) * (slot_ptr[type + 1] - slot_ptr[type]);
  }

  LG_PREFETCHES void prefetch(int64_t node) const {
    constexpr int64_t kLine = 64 / sizeof(Offset), kMost = 16 * kLine;
    const int64_t type = type_of(node), num_slots = slot_ptr[type + 1] - slot_ptr[type];
    const Offset* runs = runs_of(node, type);
    __builtin_prefetch(runs);
    __builtin_prefetch(runs + num_slots);
    if (num_slots <= kLine) return;
    for (int64_t i = kLine; i <= std::min(num_slots, kMost); i += kLine) {
      __builtin_prefetch(runs + i);
    }
  }

  int64_t num_runs(int64_t) const { return most_slots; }

  template <class Add>
  void visit(int64_t node, const Add& add) const {
    const int64_t type = type_of(node), num_slots = slot_ptr[type + 1] - slot_ptr[type];
    const Offset* runs = runs_of(node, type);
    const int32_t* types = slot_type + slot_ptr[type];
    for (int64_t s = 0; s < num_slots; ++s) {
      add(types[s], int64_t(runs[s]), uint32_t(runs[s + 1] - runs[s]));
    }
  }

  bool follows() const { return false; }
  int64_t follow(int64_t, int64_t position) const { return position; }
};

}  // namespace lg
