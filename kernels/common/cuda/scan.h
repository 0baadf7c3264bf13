// scan.h: sums over all items before, across blocks, in one pass.
//
// Items come in tiles, and a block takes the next tile by a ticket, so whoever it waits for has begun
// before it. A tile's word says how far its sum has come: kAbsent, kOwn (of the tile alone) or kWhole
// (of all tiles up to it). Values are below 2^62.
// Source: Merrill and Garland, "Single-pass parallel prefix scan with decoupled look-back", 2016.
#pragma once

#include "common/cuda/state.h"

namespace lg {

constexpr int kScanThreads = 256;
constexpr int kScanWarps = kScanThreads / 32;
constexpr uint32_t kAllLanes = 0xffffffffu;

// The sum of `value` over the threads before this one, and of all threads, in blocks of kScanThreads.
struct BlockSum {
  int64_t before, total;
};
__device__ inline BlockSum block_sum(int64_t value) {
  __shared__ int64_t of_warp[kScanWarps];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  int64_t sum = value;
  for (int step = 1; step < 32; step *= 2) {
    const int64_t lower = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += lower;
  }
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  int64_t before = 0, total = 0;
  for (int w = 0; w < kScanWarps; ++w) {
    if (w < warp) before += of_warp[w];
    total += of_warp[w];
  }
  __syncthreads();  // of_warp is free again
  return {before + sum - value, total};
}

class TileScan {
 public:
  // words[0] counts tickets, words[1 + tile] is the tile's; all zero before the launch.
  __device__ explicit TileScan(Word* words) : words_(words) {}

  // The block's next tile, the same in all its threads.
  __device__ int64_t next_tile() {
    __shared__ int64_t ticket;
    __syncthreads();
    if (threadIdx.x == 0) ticket = int64_t(atomicAdd(words_, Word(1)));
    __syncthreads();
    return ticket;
  }

  // The sum of all tiles before, given this one's own: called by all threads of the block, once a tile.
  __device__ int64_t before(int64_t tile, int64_t own) {
    __shared__ int64_t sum;
    if (threadIdx.x == 0) {
      publish(tile, tile == 0 ? kWhole : kOwn, own);
      sum = look_back(tile);
      if (tile > 0) publish(tile, kWhole, sum + own);
    }
    __syncthreads();
    return sum;
  }

 private:
  static constexpr Word kOwn = Word(1) << 62, kWhole = Word(2) << 62, kValue = kOwn - 1;

  __device__ void publish(int64_t tile, Word status, int64_t value) {
    __threadfence();
    atomicExch(words_ + 1 + tile, status | Word(value));
  }

  __device__ int64_t look_back(int64_t tile) {
    int64_t sum = 0;
    while (--tile >= 0) {
      Word word;
      do {
        word = atomicAdd(words_ + 1 + tile, Word(0));
      } while (word == 0);
      sum += int64_t(word & kValue);
      if ((word & ~kValue) == kWhole) break;
    }
    return sum;
  }

  Word* words_;
};

}  // namespace lg
