// layer_edges.h: the edges into a hop's destinations as one stream, numbered from 0: what layer.h is
// to one thread.
#pragma once

#include "common/cuda/batch.h"
#include "common/cuda/kernel.h"

namespace lg {

// Of its edges, those that may be taken are a layer's items: each an edge, in order, with its factor.
// Python fills it from Layer in ops/cuda/sampling/layer.py.
struct Layer {
  int64_t* offsets;  // of destination i: the number of its first edge; offsets[*num_dst]: of all
  int64_t* num_edges;
  int64_t* num_items;
  int64_t* numbers;  // the items' edges, ascending; nullptr: item i is edge i
  double* factors;   // 0: not taken; nullptr: all are, with factor 1
  int32_t* places;   // [*num_items + 1]: taken items before each
  double* divisors;  // by destination: what its factors are divided by
};

struct LayerEdges {
  const int64_t* offsets;
  int64_t first, end;  // destinations

  __device__ LayerEdges(const Hop& hop, const Layer& layer)
      : offsets(layer.offsets), first(*hop.first), end(*hop.num_dst) {}

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
