// build_alias.h: a graph's alias tables (common/alias.h) from its edge weights.
//
//   in   indptr[num_nodes + 1]   of a graph that passed check_csc
//   in   weights[num_edges]      finite and not negative
//   out  table[num_edges]        the slots of each node's in-neighbours, in adjacency order
// Throws GraphFormatError: a weight that is negative, infinite or not a number.
// One pass over the nodes; scratch of 12 bytes for each neighbour of the node at work.
#pragma once

#include "common/alias.h"

namespace lg {

template <class Weight>
void build_alias(const int64_t* indptr, int64_t num_nodes, const Weight* weights,
                 AliasEntry* table);

}  // namespace lg
