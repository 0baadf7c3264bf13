// layer_edges.h: the edges into a hop's destinations as one stream, numbered from 0: what layer.h is
// to one thread.
#pragma once

#include "common/cuda/kernel.h"

namespace lg {

struct LayerEdges {
  const int64_t* offsets;  // of destination i: the number of its first edge; offsets[end]: of all
  int64_t first, end;      // destinations

  // The destination of an edge.
  __device__ int64_t destination(int64_t number) const {
    int64_t low = first, high = end;  // offsets[low] <= number < offsets[high]
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (offsets[middle] <= number ? low : high) = middle;
    }
    return low;
  }

  __device__ int64_t degree(int64_t destination) const {
    return offsets[destination + 1] - offsets[destination];
  }
};

}  // namespace lg
