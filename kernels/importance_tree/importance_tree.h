// importance_tree.h: a tree (tree.h) of every node's importance (importance.h) to the whole graph.
//
//   in   graph                  that passed check_csc
//   out  entries[num_nodes + 1]
// One pass over the edges; no scratch.
#pragma once

#include "common/batch.h"

namespace lg {

template <class Index>
void importance_tree(const Csc<Index>& graph, int64_t* entries);

}  // namespace lg
