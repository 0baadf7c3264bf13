// weight_bits.h: weights as whole numbers, by their bits alone: no rounding mode, no flushing of
// subnormal numbers, which torch can switch on, and no order of summation has a say.
#pragma once

#include <cstring>

#include "common/philox.h"

namespace lg {

// The bits of a weight, from the sign on downward; weights are in the order of their bits, and all
// that are negative, infinite or not a number come from kInfinityBits on.
LG_HD uint64_t raw_bits(double weight) {
  uint64_t bits;
  memcpy(&bits, &weight, sizeof(bits));
  return bits;
}
LG_HD uint64_t raw_bits(float weight) {
  uint32_t bits;
  memcpy(&bits, &weight, sizeof(bits));
  return uint64_t(bits) << 32;
}

template <class Weight>
LG_HD uint64_t weight_bits(Weight weight) {
  constexpr uint64_t kNegativeZero = uint64_t(1) << 63;
  const uint64_t bits = raw_bits(weight);
  return bits == kNegativeZero ? 0 : bits;
}

template <class Weight>
constexpr int kFractionBits = sizeof(Weight) == sizeof(double) ? 52 : 23 + 32;

template <class Weight>
constexpr uint64_t kInfinityBits = (uint64_t(1) << 63) - (uint64_t(1) << kFractionBits<Weight>);

// Weights in units that give the greatest one, not zero, all 64 bits; rounded down.
class FixedPoint {
 public:
  // fraction_bits: kFractionBits of the weights.
  LG_HD FixedPoint(uint64_t greatest_bits, int fraction_bits)
      : fraction_bits_(fraction_bits),
        exponent_(exponent(greatest_bits)),
        lead_(__builtin_clzll(mantissa(greatest_bits))) {}

  LG_HD uint64_t operator()(uint64_t bits) const {
    const int shift = exponent_ - exponent(bits);
    const uint64_t reaches = 0 - uint64_t(shift < 64);  // all ones, or 0: cannot be predicted
    return (mantissa(bits) << lead_) >> (shift & 63) & reaches;
  }

 private:
  LG_HD int exponent(uint64_t bits) const {
    const int exponent = int(bits >> fraction_bits_);
    return exponent > 0 ? exponent : 1;  // of subnormal numbers
  }
  LG_HD uint64_t mantissa(uint64_t bits) const {
    const uint64_t one = uint64_t(1) << fraction_bits_;
    return (bits & (one - 1)) | (bits >= one ? one : 0);
  }

  int fraction_bits_, exponent_, lead_;
};

}  // namespace lg
