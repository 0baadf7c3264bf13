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
    if (threadIdx.x < 32) {
      if (threadIdx.x == 0) publish(tile, tile == 0 ? kWhole : kOwn, own);
      const int64_t found = look_back(tile);
      if (threadIdx.x == 0) {
        sum = found;
        if (tile > 0) publish(tile, kWhole, found + own);
      }
    }
    __syncthreads();
    return sum;
  }

 private:
  static constexpr Word kOwn = Word(1) << 62, kWhole = Word(2) << 62, kValue = kOwn - 1;

  __device__ void publish(int64_t tile, Word status, int64_t value) {
    atomicExch(words_ + 1 + tile, status | Word(value));
  }

  // By one warp, which looks at as many tiles at once: one by one, thousands of blocks that begin
  // together would wait for each other longer than they work.
  __device__ int64_t look_back(int64_t tile) {
    int64_t sum = 0;
    for (int64_t last = tile - 1; last >= 0; last -= 32) {
      const int64_t mine = last - int64_t(threadIdx.x);
      Word word = kWhole;  // before the first tile: nothing
      if (mine >= 0) {
        do {
          word = *static_cast<volatile const Word*>(words_ + 1 + mine);
        } while (word == kAbsent);
      }
      const uint32_t whole = __ballot_sync(kAllLanes, (word & ~kValue) == kWhole);
      const int nearest = __ffs(int(whole)) - 1;  // -1: none of them
      const bool counts = nearest < 0 || int(threadIdx.x) <= nearest;
      int64_t value = counts ? int64_t(word & kValue) : 0;
      for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
      sum += value;
      if (nearest >= 0) break;
    }
    return sum;
  }

  static constexpr Word kAbsent = 0;

  Word* words_;
};

}  // namespace lg
