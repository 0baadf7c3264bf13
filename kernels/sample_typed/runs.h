// runs.h: where the in-neighbours of a node by edges of one type lie: run r at run_ptr[r] up to run_ptr[r + 1].
//
// Two layouts of runs, under one interface:
//   num_runs(node)               at most
//   visit(node, add)             add(type, start, degree) for its runs, in ascending order of type
//   prefetch_runs(runs, node)    what tells where they are
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/fetch.h"
#include "common/prefetch.h"
#include "sample_typed/dense_runs.h"

namespace lg {

// Runs that are not empty alone. For graphs of very many edge types, and parts, whose nodes do not lie by type.
struct SparseRuns {
  const int64_t* run_ptr;    // [R + 1]
  const int64_t* first_run;  // [N + 1], by node
  const int32_t* run_type;   // [R]

  // Fetches what visit() reads soon after.
  int64_t num_runs(int64_t node) const {
    const int64_t first = first_run[node];
    fetch_line(&run_ptr[first]);
    fetch_line(&run_type[first]);
    return first_run[node + 1] - first;
  }

  template <class Add>
  void visit(int64_t node, const Add& add) const {
    for (int64_t r = first_run[node]; r < first_run[node + 1]; ++r) {
      add(run_type[r], run_ptr[r], uint32_t(run_ptr[r + 1] - run_ptr[r]));
    }
  }
};

LG_PREFETCHES void prefetch_runs(const SparseRuns& runs, int64_t node) {
  fetch_line(&runs.first_run[node]);
  fetch_line(&runs.first_run[node + 1]);
}

template <class Offset>
LG_PREFETCHES void prefetch_runs(const DenseRuns<Offset>& runs, int64_t node) {
  constexpr int64_t kLine = 64 / sizeof(Offset), kMost = 16 * kLine;
  const int64_t type = runs.type_of(node);
  const int64_t num_slots = runs.slot_ptr[type + 1] - runs.slot_ptr[type];
  const Offset* first = runs.runs_of(node, type);
  fetch_line(first);
  fetch_line(first + std::max(num_slots, runs.reach()));
  if (num_slots <= kLine) return;
  for (int64_t i = kLine; i <= std::min(num_slots, kMost); i += kLine) {
    fetch_line(first + i);
  }
}

}  // namespace lg
