// floats.h: numbers that rows are of. Those of 16 bits are widened to float32, and rounded to nearest,
// ties to even; a NaN becomes the plain one, as torch has it.
#pragma once

#include "common/float_bits.h"

namespace lg {

struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

LG_HD double widen(double value) { return value; }
LG_HD float widen(float value) { return value; }
LG_HD float widen(BFloat16 value) { return float_of(uint32_t(value.bits) << 16); }
LG_HD float widen(Float16 value) {
  const uint32_t sign = uint32_t(value.bits & 0x8000) << 16, size = value.bits & 0x7fff;
  if (size >= 0x7c00) return float_of(sign | 0x7f800000u | (size & 0x3ff) << 13);
  constexpr float kLast = 5.9604644775390625e-8f;  // 2^-24
  if (size < 0x400) return float_of(sign | bits_of(float(size) * kLast));
  return float_of(sign | ((size << 13) + (uint32_t(127 - 15) << 23)));
}

// What products and sums are computed in.
template <class T>
using Wide = decltype(widen(T()));

LG_HD void narrow(double value, double* to) { *to = value; }
LG_HD void narrow(float value, float* to) { *to = value; }
LG_HD void narrow(float value, BFloat16* to) {
  to->bits = value != value ? uint16_t(0x7fc0) : to_bfloat16(value);
}
LG_HD void narrow(float value, Float16* to) {
  to->bits = value != value ? uint16_t(0x7e00) : to_float16(value);
}

}  // namespace lg
