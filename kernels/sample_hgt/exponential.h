// exponential.h: exponential variates, of one word each.
//
// By additions, multiplications and divisions of doubles alone, which every machine rounds alike: a
// library's logarithm differs in its last bit from one to the next. To be compiled without contraction.
#pragma once

#include <cstdint>
#include <cstring>

namespace lg {

// -log(u), where u is uniform among the middles of 2^52 equal parts of (0, 1). Positive, and within 4
// units in the last place.
inline double exponential(uint64_t word) {
  constexpr double kLog2 = 0.6931471805599453, kRootOf2 = 1.4142135623730951;
  const double u = (double(word >> 12) + 0.5) * 0x1p-52;  // exact
  uint64_t bits;
  std::memcpy(&bits, &u, sizeof(bits));
  int64_t exponent = int64_t(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffu) | uint64_t(1023) << 52;
  double mantissa;
  std::memcpy(&mantissa, &bits, sizeof(mantissa));
  if (mantissa > kRootOf2) {
    mantissa *= 0.5;
    ++exponent;
  }
  // log(m) = 2 atanh((m - 1) / (m + 1)), whose argument is below 0.172: thirteen terms.
  const double s = (mantissa - 1) / (mantissa + 1), z = s * s;
  double sum = 0;
  for (int k = 25; k >= 1; k -= 2) sum = sum * z + 1.0 / k;
  return -(double(exponent) * kLog2 + 2 * s * sum);
}

}  // namespace lg
