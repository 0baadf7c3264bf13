// team.h: threads of a block that work on one item: a power of two, from a part of a warp to the whole
// block. All teams of a block do the same at the same time.
#pragma once

#include "common/cuda/state.h"

namespace lg {

struct Team {
  uint32_t size;
  uint32_t number, num_teams;  // in the block
  uint32_t thread;             // of the team

  __device__ explicit Team(uint32_t team_size)
      : size(team_size),
        number(threadIdx.x / team_size),
        num_teams(blockDim.x / team_size),
        thread(threadIdx.x % team_size) {}

  // All threads of a team see what each of them wrote. Called by all threads of the block.
  __device__ void sync() const {
    if (size <= 32) {
      __syncwarp(0xffffffffu);
    } else {
      __syncthreads();
    }
  }
};

// Sorts keys from the largest to the smallest, and with them values, if there are any. `count` is a
// power of two.
// Source: Batcher, "Sorting networks and their applications", AFIPS 1968: the bitonic sorter.
__device__ inline void sort_falling(const Team& team, Word* keys, Word* values, uint32_t count) {
  for (uint32_t run = 2; run <= count; run *= 2) {
    for (uint32_t stride = run / 2; stride > 0; stride /= 2) {
      for (uint32_t i = team.thread; i < count / 2; i += team.size) {
        const uint32_t low = 2 * i - (i & (stride - 1)), high = low + stride;
        const bool falls = (low & run) == 0;
        const Word a = keys[low], b = keys[high];
        if ((a < b) != falls || a == b) continue;
        keys[low] = b;
        keys[high] = a;
        if (values == nullptr) continue;
        const Word value = values[low];
        values[low] = values[high];
        values[high] = value;
      }
      team.sync();
    }
  }
}

}  // namespace lg
