// split_types.h: the nodes and edges of a mini-batch by type, each type's in the order of the batch.
//
// A stable partition: where a destination is a prefix of the sources before, it is one after, type by
// type. Linear time but for the comparison of a node with the first of each of T types.
#pragma once

#include <cstdint>

#include "graph/typed_hop.h"

namespace lg {

//   in   nodes[V], first_node[T + 1]   the ids of type t are first_node[t] to first_node[t + 1] - 1;
//                                      an id that is of no type is a GraphFormatError
//   out  ptr[T + 1]                    the nodes of type t are position[ptr[t]] to position[ptr[t + 1] - 1]
//   out  rank[V]                       where each node is in `position`
//   out  position[V], local[V]         where each is in the batch; its id within its type
void split_nodes(const int64_t* nodes, int64_t num_nodes, const int64_t* first_node,
                 int64_t num_types, int64_t* ptr, int32_t* rank, int64_t* position, int64_t* local);

//   in   begin[K + 1]  the indptr of edge type k is indptrs[begin[k]] to indptrs[begin[k + 1] - 1], one
//                      more than the hop has destinations of the type's target
//   out  ptr[K + 1]    the edges of type k are position[ptr[k]] to position[ptr[k + 1] - 1]
//   out  indptrs[...]  of each type's block, all zero before
//   out  sources[E]    each edge's source, as its place within its type
//   out  edge_ids[E]   of the hop, by type; nullptr where it has none
//   out  position[E]   where the edge is in the hop; may be nullptr
// An edge type or a place out of range, an indptr that does not ascend to E, or an edge whose ends are
// not of its type's types is a GraphFormatError. Fastest where edges of one type lie side by side.
void split_edges(const TypedHop& hop, const TypedNodes& nodes, const EdgeEnds& ends,
                 const int64_t* begin, int64_t* ptr, int32_t* indptrs, int32_t* sources,
                 int64_t* edge_ids, int64_t* position);

}  // namespace lg
