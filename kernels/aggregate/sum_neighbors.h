// sum_neighbors.h: for each destination, the sum or the mean of its in-neighbours' rows.
//
//   in   the block, x[num_src, width]
//   out  out[num_dst, width]    zeros where a destination has no edge
// Sums go in the order of the edges. Rows are one thread's each, so the results are those of any number of threads.
//
// Backward: out[num_src, width], for each source the sum of its destinations' gradients, in their order; those of a
// mean times 1 / the destination's number of edges. It is the same sum, over the block's transpose.
//
// Throws GraphFormatError as check_block does; nothing is written.
#pragma once

#include "aggregate/aggregate.h"

namespace lg {

void sum_neighbors(const AggregateRequest& request, bool is_mean, const void* x, void* out);

void sum_destinations(const AggregateRequest& request, bool is_mean, const void* grad, void* out);

}  // namespace lg
