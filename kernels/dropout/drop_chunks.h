// drop_chunks.h: what decides about an element, and dropping element by element.
#pragma once

#include "dropout/dropout.h"
#include "gather_quantized/float_bits.h"

namespace lg {

// The mask, the mask of what passes the relu, or the output of that.
enum class DropBy { kKey, kKeyAndRelu, kOutput };

struct DropLaw {
  DropoutKey key;
  uint32_t threshold;
  double scale;
};

struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// What products are computed in.
inline double widen(double value) { return value; }
inline float widen(float value) { return value; }
inline float widen(BFloat16 value) { return float_of(uint32_t(value.bits) << 16); }
inline float widen(Float16 value) {
  const uint32_t sign = uint32_t(value.bits & 0x8000) << 16, size = value.bits & 0x7fff;
  if (size >= 0x7c00) return float_of(sign | 0x7f800000u | (size & 0x3ff) << 13);
  if (size < 0x400) return float_of(sign | bits_of(float(size) * 0x1p-24f));
  return float_of(sign | ((size << 13) + (uint32_t(127 - 15) << 23)));
}

inline void narrow(double value, double* to) { *to = value; }
inline void narrow(float value, float* to) { *to = value; }
inline void narrow(float value, BFloat16* to) {
  to->bits = value != value ? uint16_t(0x7fc0) : to_bfloat16(value);
}
inline void narrow(float value, Float16* to) {
  to->bits = value != value ? uint16_t(0x7e00) : to_float16(value);
}

// Elements 0 to count - 1 of a chunk; at most all of it.
template <DropBy by, class T>
void drop_part(const T* in, T* out, const T* output, int64_t chunk, int count, const DropLaw& law) {
  uint16_t halves[kDropoutChunk];
  for (int block = 0; by != DropBy::kOutput && block < kChunkBlocks; ++block) {
    const Words4 drawn = dropout_words(law.key, uint64_t(chunk) * kChunkBlocks + uint64_t(block));
    const uint32_t words[kBlockWords] = {drawn.x, drawn.y, drawn.z, drawn.w};
    for (int k = 0; k < kBlockWords; ++k) {
      halves[32 * k + 2 * block] = uint16_t(words[k]);
      halves[32 * k + 2 * block + 1] = uint16_t(words[k] >> 16);
    }
  }
  for (int i = 0; i < count; ++i) {
    const auto value = widen(in[i]);
    bool keep = by == DropBy::kOutput ? !(widen(output[i]) <= 0) : halves[i] >= law.threshold;
    if (by == DropBy::kKeyAndRelu) keep = keep && !(value <= 0);
    const decltype(value) scale = decltype(value)(law.scale);
    narrow(keep ? value * scale : decltype(value)(0), out + i);
  }
}

}  // namespace lg
