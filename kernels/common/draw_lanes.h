// draw_lanes.h: draws by vectors; common/draw.h says what they are. Include it last (common/lanes.h).
#pragma once

#include "common/draw.h"
// Last, since it turns vector instructions on.
#include "common/lanes.h"

namespace lg {
namespace {

// As philox(), in each lane.
inline void philox_lanes(Lanes& x, Lanes& y, Lanes& z, Lanes& w, uint32_t key0, uint32_t key1) {
  const Lanes multiplier0 = Lanes::splat(kPhiloxMultiplier0);
  const Lanes multiplier1 = Lanes::splat(kPhiloxMultiplier1);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    Lanes low0, low1;
    const Lanes high0 = multiply(multiplier0, x, low0);
    const Lanes high1 = multiply(multiplier1, z, low1);
    x = high1 ^ y ^ Lanes::splat(key0);
    z = high0 ^ w ^ Lanes::splat(key1);
    y = low1;
    w = low0;
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
}

// The words of up to sixteen nodes' draws, first attempts, node by node: sixteen blocks of four words
// at each call of next(). num_blocks, those of a node, is at most 4096: up to there, and a little
// beyond, the quotient below is exact.
class BlockVectors {
 public:
  BlockVectors(uint32_t key0, uint32_t key1, uint32_t step, Lanes node_low, Lanes node_high_hop,
               uint32_t num_blocks)
      : key0_(key0),
        key1_(key1),
        step_(Lanes::splat(step)),
        node_low_(node_low),
        node_high_hop_(node_high_hop),
        minus_num_blocks_(Lanes::splat(0u - num_blocks)),
        inverse_(Lanes::splat((1u << 31) / num_blocks)) {
    sequence_ = Lanes::load(kPlace);  // so that store_words() puts blocks in sequence
  }

  void next(uint32_t* words) {
    // sequence / num_blocks as (2 sequence + 1) (2^31 / num_blocks) / 2^32: the half that the odd
    // number adds keeps the quotient clear of whole numbers, so that rounding does not matter.
    Lanes unused, minus_first_block;
    const Lanes node = multiply(sequence_ + sequence_ + Lanes::splat(1), inverse_, unused);
    multiply(node, minus_num_blocks_, minus_first_block);
    Lanes x = lookup(node_low_, node), y = lookup(node_high_hop_, node), z = step_;
    Lanes w = sequence_ + minus_first_block;
    philox_lanes(x, y, z, w, key0_, key1_);
    store_words(x, y, z, w, words);
    sequence_ = sequence_ + Lanes::splat(kLanes);
  }

 private:
  const uint32_t key0_, key1_;
  const Lanes step_, node_low_, node_high_hop_, minus_num_blocks_, inverse_;
  Lanes sequence_;
};

}  // namespace
}  // namespace lg
