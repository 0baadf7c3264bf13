// start_edges.h: where the edges of each destination of a hop begin, by how many it has.
#pragma once

#include "common/cuda/batch.h"
#include "common/cuda/scan.h"

namespace lg {

// In blocks of kScanThreads.
//
//   in   num_edges_of(dst)
//   out  hop.starts, *hop.last_edge
//   tmp  words[1 + tiles]           zero
//   err  kTooManyEdges              more than max_edges
template <class NumEdgesOf>
__device__ void start_edges(const Batch& batch, const Hop& hop, int64_t max_edges,
                            const NumEdgesOf& num_edges_of, Word* words) {
  const int64_t first = *hop.first, first_edge = *hop.first_edge;
  const int64_t count = *hop.num_dst - first;
  TileScan scan(words);
  for (int64_t tile = scan.next_tile(); tile == 0 || tile * kScanThreads < count;
       tile = scan.next_tile()) {
    const int64_t i = tile * kScanThreads + threadIdx.x;
    const int64_t num_edges = i < count ? num_edges_of(first + i) : 0;
    const BlockSum sum = block_sum(num_edges);
    const int64_t of_tile = first_edge + scan.before(tile, sum.total);
    if (tile == 0 && threadIdx.x == 0) hop.starts[first] = int32_t(first_edge);
    if (i < count) hop.starts[first + i + 1] = int32_t(of_tile + sum.before + num_edges);
    if ((tile + 1) * kScanThreads >= count && threadIdx.x == 0) {
      const int64_t end = *hop.last_edge = of_tile + sum.total;
      if (end > max_edges) report(batch.error, kTooManyEdges, end);
    }
  }
}

}  // namespace lg
