// drop_chunks.h: what decides about an element, and dropping element by element.
#pragma once

#include <type_traits>

#include "dropout/dropout.h"
#include "dropout/floats.h"

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
  uint32_t kept[kBlockWords] = {};
  for (int i = 0; i < count; ++i) {
    const auto value = widen(in[i]);
    using Number = std::remove_const_t<decltype(value)>;
    bool keep = by == DropBy::kBits ? bits[i / 32] >> (i % 32) & 1 : halves[i] >= law.threshold;
    if (by == DropBy::kKeyAndRelu) keep = keep && !(value <= 0);
    kept[i / 32] |= uint32_t(keep) << (i % 32);
    narrow(keep ? value * Number(law.scale) : Number(0), out + i);
  }
  if (by != DropBy::kBits && bits) std::memcpy(bits, kept, sizeof kept);
}

}  // namespace lg
