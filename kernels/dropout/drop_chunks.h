// drop_chunks.h: what decides about an element, and dropping element by element.
#pragma once

#include "common/floats.h"
#include "dropout/dropout.h"

namespace lg {

enum class DropBy { kKey, kKeyAndRelu, kBits };

struct DropLaw {
  DropoutKey key;
  uint32_t threshold;
  double scale;
};

// Elements 0 to count - 1 of a chunk, at most all of it; `bits` are the chunk's: read, or written unless null.
template <DropBy by, class T>
void drop_part(const T* in, T* out, uint32_t* bits, int64_t chunk, int count, const DropLaw& law) {
  uint16_t halves[kDropoutChunk];
  for (int block = 0; by != DropBy::kBits && block < kChunkBlocks; ++block) {
    const Words4 drawn = dropout_words(law.key, uint64_t(chunk) * kChunkBlocks + uint64_t(block));
    const uint32_t words[kBlockWords] = {drawn.x, drawn.y, drawn.z, drawn.w};
    for (int k = 0; k < kBlockWords; ++k) {
      halves[32 * k + 2 * block] = uint16_t(words[k]);
      halves[32 * k + 2 * block + 1] = uint16_t(words[k] >> 16);
    }
  }
  using Number = decltype(widen(in[0]));
  const Number scale = Number(law.scale);
  uint8_t keep[kDropoutChunk] = {};
  // Loops without branches, which become vectors where there are any.
  if (by == DropBy::kBits) {
    for (int i = 0; i < kDropoutChunk; ++i) keep[i] = bits[i / 32] >> (i % 32) & 1;
  } else {
    for (int i = 0; i < count; ++i) {
      const bool passes = by == DropBy::kKey || !(widen(in[i]) <= 0);
      keep[i] = uint8_t((halves[i] >= law.threshold) & passes);
    }
  }
  for (int i = 0; i < count; ++i) narrow(keep[i] ? widen(in[i]) * scale : Number(0), out + i);
  if (by == DropBy::kBits || !bits) return;
  for (int word = 0; word < kBlockWords; ++word) {
    bits[word] = 0;
    for (int bit = 0; bit < 32; ++bit) bits[word] |= uint32_t(keep[32 * word + bit]) << bit;
  }
}

}  // namespace lg
