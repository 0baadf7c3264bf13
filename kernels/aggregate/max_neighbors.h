// max_neighbors.h: for each destination and column, the largest of its in-neighbours' numbers, and whose it is.
//
//   in   indptr[num_dst + 1], indices[num_edges]   a block: destination d's sources are indices[indptr[d] ...]
//   in   x[num_src, width]
//   out  out[num_dst, width]    0 where a destination has no edge
//   out  from[num_dst, width]   the source; of equals the first in the order of the edges; -1 where there is none
// A NaN is larger than any number. Rows are one thread's each, so the results are those of any number of threads.
//
// Backward: into[from[d, c], c] += grad[d, c], in the order of destinations; a thread has columns of its own.
//
// Throws GraphFormatError for a block that is none, or a source that is outside of [0, num_src); nothing is written.
#pragma once

#include "aggregate/aggregate.h"

namespace lg {

void max_neighbors(const AggregateRequest& request, const void* x, void* out, int32_t* from);

// Adds to into[num_src, width]: double for kFloat64, else float.
void add_to_sources(const int32_t* from, const void* grad, void* into, int64_t num_dst,
                    int64_t num_src, int64_t width, RowFormat format, int num_threads);

}  // namespace lg
