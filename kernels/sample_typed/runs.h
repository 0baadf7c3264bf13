// runs.h: where the in-neighbours of a node by edges of one type lie: a run.
//
// Two indexes of runs, under one interface:
//   num_runs(node)               at most
//   visit(node, add)             add(type, start, degree) for its runs, in ascending order of type
//   follow(node, position)       the position in `indices` of a position in a run
//   prefetch_runs(runs, node)    what visit() reads
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/prefetch.h"
#include "sample_typed/dense_runs.h"

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

template <class Index>
LG_PREFETCHES void prefetch_runs(const SparseRuns<Index>& runs, int64_t node) {
  prefetch_degree(runs.graph, node);
  __builtin_prefetch(&runs.run_ptr[node]);
  __builtin_prefetch(&runs.run_ptr[node + 1]);
}

template <class Offset>
LG_PREFETCHES void prefetch_runs(const DenseRuns<Offset>& runs, int64_t node) {
  constexpr int64_t kLine = 64 / sizeof(Offset), kMost = 16 * kLine;
  const int64_t type = runs.type_of(node);
  const int64_t num_slots = runs.slot_ptr[type + 1] - runs.slot_ptr[type];
  const Offset* first = runs.runs_of(node, type);
  __builtin_prefetch(first);
  __builtin_prefetch(first + num_slots);
  if (num_slots <= kLine) return;
  for (int64_t i = kLine; i <= std::min(num_slots, kMost); i += kLine) {
    __builtin_prefetch(first + i);
  }
}

}  // namespace lg
