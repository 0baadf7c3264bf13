// dropout.h: out[i] = in[i] * scale where element i is kept, else 0; of relu(in[i]) where asked for.
//
//   in   key        which mask: a pure function of seed, epoch, step, rank, layer and call
//   in   threshold  of 65536 elements, so many are dropped; scale is 65536 / (65536 - threshold)
//   in   in[count]  floats of `format`, aligned to their size
//   out  out[count] likewise; in place where it is `in`
//   out  bits       what was kept, and passed the relu: bit i % 32 of word i / 32, in whole chunks
//
// An element is kept where 16 random bits reach the threshold: one Philox block decides 8 elements.
// Its counter is where they stand, so threads, devices and instruction sets make no difference. What
// is dropped is +0, also where it was NaN or infinite. A product is rounded to nearest, ties to even.
//
//   chunk    128 elements, decided by 16 blocks; word k of block l is for elements 32 k + 2 l (its low
//            half) and 32 k + 2 l + 1, so that vectors of words lie as the elements do
#pragma once

#include "common/philox.h"

namespace lg {

constexpr int kDropoutChunk = 128;
constexpr int kChunkBlocks = 16;
constexpr int kBlockWords = 4;

// The key of one call's mask: the half of a block's counter that is the same for all, and Philox's key.
struct DropoutKey {
  uint64_t low;
  uint64_t high;
};

// Different arguments give different keys, as Philox is one to one: no two calls of a seed share a block.
LG_HD DropoutKey dropout_key(uint64_t seed, uint32_t epoch, uint32_t step, uint16_t rank,
                             uint16_t layer, uint32_t call) {
  const uint32_t place = uint32_t(rank) << 16 | layer;
  const Words4 words = philox({epoch, step, place, call}, uint32_t(seed), uint32_t(seed >> 32));
  return {uint64_t(words.y) << 32 | words.x, uint64_t(words.w) << 32 | words.z};
}

LG_HD Words4 dropout_words(DropoutKey key, uint64_t block) {
  return philox(
      {uint32_t(block), uint32_t(block >> 32), uint32_t(key.high), uint32_t(key.high >> 32)},
      uint32_t(key.low), uint32_t(key.low >> 32));
}

#ifndef __CUDACC_RTC__

enum class DropoutFormat { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2, kFloat64 = 3 };

struct DropoutRequest {
  const void* in;
  void* out;
  int64_t count;
  DropoutFormat format;
  uint32_t threshold;  // below 65536
  int num_threads;     // at most so many, the calling one included
};

// `bits` may be null.
void dropout(const DropoutRequest& request, DropoutKey key, bool relu, uint32_t* bits);

// The same with what was kept before, such as for gradients: out[i] = in[i] * scale where bit i is 1.
void dropout_by_bits(const DropoutRequest& request, const uint32_t* bits);

#endif

}  // namespace lg
