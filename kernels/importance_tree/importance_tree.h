// importance_tree.h: a tree (tree.h) of every node's importance (importance.h) to the whole graph.
//
//   in   graph                  that passed check_csc
//   in   weights[num_edges]     or none
//   out  entries[num_nodes + 1]
// Throws GraphFormatError: a weight that is negative, infinite or not a number.
// One pass over the edges, three over their weights; no scratch.
#pragma once

#include "common/batch.h"
#include "importance_tree/whole_weights.h"

namespace lg {

template <class Index>
void importance_tree(const Csc<Index>& graph, const EdgeWeights& weights, int64_t* entries);

}  // namespace lg
