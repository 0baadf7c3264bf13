// start_edges.h: where the edges of each destination of a hop begin, by how many it has.
#pragma once

#include "common/cuda/scan.h"

namespace lg {

// In blocks of kScanThreads; destinations are those from first on, up to num_dst.
//
//   in   num_edges_of(dst)
//   in   first_edge              where the first one's edges begin
//   out  starts[first .. num_dst]
//   out  last_edge               where the last one's end
//   tmp  words[1 + tiles]        zero
//   err  kTooManyEdges           more than max_edges
template <class NumEdgesOf>
__device__ void start_edges(int64_t first, int64_t num_dst, int64_t first_edge, int64_t max_edges,
                            const NumEdgesOf& num_edges_of, int32_t* starts, int64_t* last_edge,
                            Word* words, Word* error) {
  const int64_t count = num_dst - first;
  TileScan scan(words);
  for (int64_t tile = scan.next_tile(); tile == 0 || tile * kScanThreads < count;
       tile = scan.next_tile()) {
    const int64_t i = tile * kScanThreads + threadIdx.x;
    const int64_t num_edges = i < count ? num_edges_of(first + i) : 0;
    const BlockSum sum = block_sum(num_edges);
    const int64_t of_tile = first_edge + scan.before(tile, sum.total);
    if (tile == 0 && threadIdx.x == 0) starts[first] = int32_t(first_edge);
    if (i < count) starts[first + i + 1] = int32_t(of_tile + sum.before + num_edges);
    if ((tile + 1) * kScanThreads >= count && threadIdx.x == 0) {
      *last_edge = of_tile + sum.total;
      if (*last_edge > max_edges) report(error, kTooManyEdges, *last_edge);
    }
  }
}

}  // namespace lg
