// check_runs.h: whether the lists of a type's nodes are cut into runs, each with sources of one type
// in the order of their times, so that kernels can trust them from then on.
//
//   in   graph                   that passed check_csc
//   in   run_ptr                 those of node first_node + i are number first_run + i * num_slots on
//   in   least, bound[num_slots] sources of a slot's runs lie in [least, bound)
//   in   edge_time               of the graph's edges, or nullptr
//
// Required, and named by GraphFormatError where it fails: a node's runs follow each other from where
// its list begins to where it ends; sources in range; codes that never fall in a run.
// One pass, no memory. All of run_ptr, read in turn for all types, is checked so.
#pragma once

#include <cstdint>

#include "common/batch.h"

namespace lg {

struct NodesOfType {
  int64_t first_node, num_nodes, first_run, num_slots;
  const int64_t* least;
  const int64_t* bound;
};

template <class Ptr, class Index>
void check_runs(const Csc<Index>& graph, const NodesOfType& nodes, const Ptr* run_ptr,
                const uint32_t* edge_time);

}  // namespace lg
