// adjacency.h: the graph as kernels of a device read it: all of it there, or lists in shards, of this
// device and of those linked to it, and the rest in host memory. Checked when the graph was built, and
// when it was placed: kernels trust it.
//
// Source: hot lists on devices, the others read over the bus: DSP (PPoPP'23), section 6; lists of
// other devices read in place, where DSP sends tasks to their owners: sections 3.2 and 4.
#pragma once

#include "common/draw.h"

namespace lg {

constexpr int kOffsetBits = 48;  // of a location

// The in-neighbours of node v are entries of a shard, if it has a location; else indices[indptr[v]]
// and on.
template <class Index>
struct Adjacency {
  const int64_t* indptr;
  const Index* indices;
  const int64_t* location;  // shard << kOffsetBits | entry; negative: in no shard; nullptr: none is
  const int64_t* shards;    // where each shard begins, in memory of whatever device
  const int64_t* names;     // nullptr: ids are names

  __device__ int64_t start(int64_t node) const { return indptr[node]; }
  __device__ int64_t degree(int64_t node) const { return indptr[node + 1] - indptr[node]; }
  __device__ const Index* list(int64_t node) const {
    const int64_t at = location != nullptr ? location[node] : -1;
    if (at < 0) return indices + indptr[node];
    const auto* const shard = reinterpret_cast<const Index*>(shards[at >> kOffsetBits]);
    return shard + (at & ((int64_t(1) << kOffsetBits) - 1));
  }

  // In whose name a node draws, wherever its list lies.
  __device__ int64_t name(int64_t node) const { return names != nullptr ? names[node] : node; }
};

}  // namespace lg
