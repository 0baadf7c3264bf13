// run_of_hop.h: a run of a hop's destination, by its number: destination dst has runs dst * most_slots
// and on, of which those beyond its own slots are empty.
#pragma once

#include "common/cuda/batch.h"
#include "sample_typed/dense_runs.h"

namespace lg {

template <class Offset>
struct RunOfHop {
  int64_t dst, node, begin;  // begin: of the run, in the node's list
  uint32_t degree = 0;
  int32_t type = 0;

  __device__ RunOfHop(const DenseRuns<Offset>& runs, const Batch& batch, int64_t number)
      : dst(number / runs.most_slots), node(batch.nodes[dst]), begin(0) {
    const int64_t slot = number - dst * runs.most_slots, node_type = runs.type_of(node);
    const int64_t first_slot = runs.slot_ptr[node_type];
    if (slot >= runs.slot_ptr[node_type + 1] - first_slot) return;
    const Offset* of_node = runs.runs_of(node, node_type);
    begin = int64_t(of_node[slot]) - int64_t(of_node[0]);
    degree = uint32_t(of_node[slot + 1] - of_node[slot]);
    type = runs.slot_type[first_slot + slot];
  }
};

}  // namespace lg
