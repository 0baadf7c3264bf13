// shares.h: the weights of one node as whole shares of degree * 2^32, in exact integer arithmetic.
//
//   in   weights[degree]   finite, not negative; 1 <= degree < 2^32
//   in   greatest_bits     weight_bits() of the greatest, not zero
//   out  shares[degree]    sum exactly degree * 2^32; at least 1 for a positive weight, 0 for zero
//
// Each positive weight has one share ahead; the others go out in proportion, by rounding the running
// sum of weights rather than the weights, so that they add up. Equal weights differ by at most two
// shares, and by none if all are equal, up to degrees of 2^28. A neighbour's probability, shares /
// (degree * 2^32), is within 2^-32 + degree * 2^-62 of weight / (sum of weights).
#pragma once

#include "build_alias/weight_bits.h"
#include "common/alias.h"

namespace lg {

template <class Weight>
LG_HD void share_out(const Weight* weights, uint32_t degree, uint64_t greatest_bits,
                     uint64_t* shares) {
  __extension__ using uint128_t = unsigned __int128;
  const FixedPoint fixed(greatest_bits, kFractionBits<Weight>);
  uint128_t sum = 0;
  uint32_t num_positive = 0;
  for (uint32_t i = 0; i < degree; ++i) {
    const uint64_t bits = weight_bits(weights[i]);
    sum += shares[i] = fixed(bits);
    num_positive += bits != 0;
  }
  // Running sums are cut to the 64 bits that the whole one then fills.
  const int cut = sum >> 64 ? 64 - __builtin_clzll(uint64_t(sum >> 64)) : 0;
  const uint64_t whole = uint64_t(sum >> cut);
  const uint64_t to_give = degree * kSlotShares - num_positive;
  uint128_t running = 0;
  uint64_t given = 0;
  for (uint32_t i = 0; i < degree; ++i) {
    running += shares[i];
    const uint64_t due =
        uint64_t((uint128_t(uint64_t(running >> cut)) * to_give + whole / 2) / whole);
    shares[i] = due - given + (weight_bits(weights[i]) != 0);
    given = due;
  }
}

}  // namespace lg
