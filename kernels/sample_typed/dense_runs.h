// dense_runs.h: the runs (runs.h) of a graph whose nodes lie by type. For CPU and CUDA.
#pragma once

#include "common/philox.h"

namespace lg {

// Nodes of a type have consecutive ids, and each a run for every slot, an edge type that ends there: so one
// read of consecutive entries of `run_ptr` tells them all.
template <class Offset>
struct DenseRuns {
  const Offset* run_ptr;      // [R + 1]
  const int64_t* first_node;  // [T + 1], by node type
  const int64_t* first_run;   // [T + 1]
  const int64_t* slot_ptr;    // [T + 1]
  const int32_t* slot_type;   // [K]
  int64_t num_node_types;
  int64_t most_slots;  // of a type

  // The last type that begins at the node or before: empty types begin where the next one does.
  LG_HD int64_t type_of(int64_t node) const {
    const int64_t* first = first_node;
    for (int64_t left = num_node_types; left > 1;) {
      const int64_t half = left / 2;
      first += first[half] <= node ? half : 0;
      left -= half;
    }
    return first - first_node;
  }

  LG_HD const Offset* runs_of(int64_t node, int64_t type) const {
    return run_ptr + first_run[type] +
           (node - first_node[type]) * (slot_ptr[type + 1] - slot_ptr[type]);
  }

  LG_HD int64_t num_runs(int64_t) const { return most_slots; }

  // How many entries of `run_ptr` vectors read at once, whether they are a node's or not (fill_runs.h).
  int64_t reach() const { return most_slots <= 4 ? 4 : 8; }

  template <class Add>
  LG_HD void visit(int64_t node, const Add& add) const {
    const int64_t type = type_of(node), num_slots = slot_ptr[type + 1] - slot_ptr[type];
    const Offset* runs = runs_of(node, type);
    const int32_t* types = slot_type + slot_ptr[type];
    for (int64_t s = 0; s < num_slots; ++s) {
      add(types[s], int64_t(runs[s]), uint32_t(runs[s + 1] - runs[s]));
    }
  }
};

}  // namespace lg
