// importance_tree.h: a tree (tree.h) of every node's importance (importance.h) to the whole graph.
//
//   in   graph                  that passed check_csc
//   in   weights[num_edges]     or none
//   out  entries[num_nodes + 1]
// importances() are what the tree is made of: where lists lie in many places, those of each are added up.
//   in   num_destinations       of the whole graph, by which they are counted
//   out  sums[num_nodes]
// Both throw GraphFormatError: a weight that is negative, infinite or not a number.
// One pass over the edges, three over their weights; no scratch.
#pragma once

#include "common/batch.h"
#include "importance_tree/whole_weights.h"

namespace lg {

template <class Index>
void importances(const Csc<Index>& graph, const EdgeWeights& weights, int64_t num_destinations,
                 int64_t* sums);

template <class Index>
void importance_tree(const Csc<Index>& graph, const EdgeWeights& weights, int64_t* entries);

}  // namespace lg
