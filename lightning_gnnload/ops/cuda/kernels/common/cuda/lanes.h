// lanes.h: a group of 8, 16 or 32 lanes of a warp that work on one item.
#pragma once

#include "common/philox.h"

namespace lg {

template <int kLanes>
struct Lanes {
  static_assert(kLanes == 8 || kLanes == 16 || kLanes == 32, "a group is a part of a warp");
  uint32_t lane;  // of the group
  uint32_t mask;  // of the warp's lanes

  __device__ Lanes() : lane(threadIdx.x % kLanes) {
    const uint32_t group = 0xffffffffu >> (32 - kLanes);
    mask = group << (threadIdx.x % 32 - lane);
  }

  // The group's lanes for which it is true, as lanes of the warp.
  __device__ uint32_t vote(bool is_true) const { return __ballot_sync(mask, is_true); }

  // The warp's lanes below this one.
  __device__ uint32_t lower() const { return (1u << (threadIdx.x % 32)) - 1u; }

  // The value of another lane of the group, all those in `among` asking.
  template <class T>
  __device__ T get(uint32_t among, T value, int of_lane) const {
    return __shfl_sync(among, value, of_lane, kLanes);
  }

  // Of all lanes of the group, which call it.
  __device__ int64_t sum(int64_t value) const {
    for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(mask, value, step);
    return value;
  }
};

}  // namespace lg
