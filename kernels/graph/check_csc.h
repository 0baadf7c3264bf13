// check_csc.h: whether two arrays are a graph, so that kernels can trust them from then on.
//
// Required, and named with its position and value by GraphFormatError where it fails:
//   indptr[0] == 0, never falling, indptr[num_nodes] == num_edges
//   in-degrees below 2^32: a draw is made of 32 bits
//   every index in [0, num_nodes)
// One pass over each array, no memory.
#pragma once

#include <cstdint>

namespace lg {

template <class Index>
void check_csc(const int64_t* indptr, int64_t num_nodes, const Index* indices, int64_t num_edges);

}  // namespace lg
