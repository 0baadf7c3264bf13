// float_bits.h: float32 to narrower floats, to nearest, ties to even; loops over it become vectors.
//
// Shared by CPU and CUDA: only the bits of a float are taken in each one's own way.
#pragma once

#include "common/philox.h"

#ifndef __CUDACC_RTC__
#include <cstring>
#endif

namespace lg {

LG_HD uint32_t bits_of(float value) {
#ifdef __CUDACC_RTC__
  return __float_as_uint(value);
#else
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

LG_HD float float_of(uint32_t bits) {
#ifdef __CUDACC_RTC__
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

// Adds half of what is cut off, less one where the last bit kept is even.
LG_HD uint32_t round_away(uint32_t bits, int cut) {
  return bits + ((1u << (cut - 1)) - 1) + (bits >> cut & 1);
}

// A choice that is no branch, which would keep a loop from becoming vectors.
LG_HD uint32_t chosen(bool first, uint32_t one, uint32_t other) {
  const uint32_t mask = 0u - uint32_t(first);
  return (one & mask) | (other & ~mask);
}

LG_HD uint16_t to_bfloat16(float value) { return uint16_t(round_away(bits_of(value), 16) >> 16); }

LG_HD uint16_t to_float16(float value) {
  constexpr int kCut = 23 - 10;  // bits of the fraction
  constexpr uint32_t kRebias = uint32_t(127 - 15) << 23;
  constexpr uint32_t kSmallestNormal = uint32_t(127 - 14) << 23;
  constexpr uint32_t kInfinity = 0x7c00;
  const uint32_t sign = bits_of(value) & 0x80000000u, size = bits_of(value) ^ sign;
  const uint32_t normal = (round_away(size, kCut) - kRebias) >> kCut;
  // Added to a half, a number loses the bits below 2^-24, which is where a float16 ends.
  const uint32_t subnormal = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
  const uint32_t half =
      chosen(size < kSmallestNormal, subnormal, normal < kInfinity ? normal : kInfinity);
  return uint16_t(sign >> 16 | half);
}

}  // namespace lg
