// adjacency.h: the graph as kernels of a device read it: all of it there, or in host memory with the
// lists of hot nodes there. Checked when the graph was built: kernels trust it.
//
// Source: hot lists on the device, the others read over the bus: DSP (PPoPP'23), section 6.
#pragma once

#include "common/draw.h"

namespace lg {

// The in-neighbours of node v: hot_indices[hot_begin[v]] and on, where hot_begin is given and
// hot_begin[v] >= 0; else indices[indptr[v]] and on.
template <class Index>
struct Adjacency {
  const int64_t* indptr;
  const Index* indices;
  const int64_t* hot_begin;
  const Index* hot_indices;
  const int64_t* names;  // nullptr: ids are names

  __device__ int64_t start(int64_t node) const { return indptr[node]; }
  __device__ int64_t degree(int64_t node) const { return indptr[node + 1] - indptr[node]; }
  __device__ const Index* list(int64_t node) const {
    const int64_t begin = hot_begin != nullptr ? hot_begin[node] : -1;
    return begin >= 0 ? hot_indices + begin : indices + indptr[node];
  }

  // In whose name a node draws, wherever its list lies.
  __device__ int64_t name(int64_t node) const { return names != nullptr ? names[node] : node; }
};

}  // namespace lg
