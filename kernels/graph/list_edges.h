// list_edges.h: the edges of a hop as 64-bit sources and targets, as PyG has them, in one pass.
#pragma once

#include <cstdint>

#include "graph/typed_hop.h"

namespace lg {

// The numbers that edges have for their user.
template <class Number>
struct EdgeOrder {
  const Number*
      numbers;  // [num_edges], by position in the graph; nullptr: the positions themselves
  int64_t num_edges;
};

//   out  edge_index[2 E]  sources, then targets, as places in the mini-batch
//   out  ids[E]           each edge's number
// A position that is not in the graph, or an indptr that does not ascend to E, is a GraphFormatError.
template <class Number>
void list_edges(const TypedHop& hop, const EdgeOrder<Number>& order, int64_t* edge_index,
                int64_t* ids);

//   in   num_dst[H]        ascends to D: how many destinations the hops up to each have
//   out  counts[H][K]      how many edges of each type hop h adds
//   out  ptr[K + 1]        the edges of type k are ids[ptr[k]] to ids[ptr[k + 1] - 1], in the order of the hop
//   out  edge_index[2 E]   their sources, from 2 ptr[k] on, then their targets: places within their types
// Errors are those of split_edges, and of list_edges.
template <class Number>
void split_edge_list(const TypedHop& hop, const TypedNodes& nodes, const EdgeEnds& types,
                     const EdgeOrder<Number>& order, const int64_t* num_dst, int64_t num_hops,
                     int64_t* counts, int64_t* ptr, int64_t* edge_index, int64_t* ids);

}  // namespace lg
