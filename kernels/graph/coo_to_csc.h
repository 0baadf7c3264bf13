// coo_to_csc.h: a graph's edges grouped by destination, by a stable counting sort.
//
//   in   src, dst [num_edges]   an edge src -> dst makes src an in-neighbour of dst. Ids outside
//                               [0, num_nodes) are a GraphFormatError that names the first
//   out  indptr [num_nodes + 1]
//   out  indices [num_edges]    sources; edges of one destination keep their order
//   out  order [num_edges]      position of each edge in the input; nullptr: not wanted
#pragma once

#include <cstdint>

namespace lg {

template <class Src, class Dst>
void coo_to_csc(const Src* src, const Dst* dst, int64_t num_edges, int64_t num_nodes,
                int64_t* indptr, Src* indices, int64_t* order);

}  // namespace lg
