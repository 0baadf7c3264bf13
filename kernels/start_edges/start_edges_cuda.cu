// start_edges_cuda.cu: where the edges of each destination of a hop begin, by counts in memory.
#include "common/cuda/kernel.h"
#include "common/cuda/start_edges.h"

namespace lg {

//   in   num_edges[first .. num_dst - 1]   of each destination
// The others as in common/cuda/start_edges.h.
__global__ void sum_edges(const uint32_t* num_edges, const int64_t* first, const int64_t* num_dst,
                          const int64_t* first_edge, int64_t max_edges, int32_t* starts,
                          int64_t* last_edge, Word* words, Word* error) {
  if (block_has_failed(error)) return;
  const auto num_edges_of = [=](int64_t dst) -> int64_t { return num_edges[dst]; };
  start_edges(*first, *num_dst, *first_edge, max_edges, num_edges_of, starts, last_edge, words,
              error);
}

}  // namespace lg

LG_INSTANTIATE(sum_edges)
