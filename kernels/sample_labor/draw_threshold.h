// draw_threshold.h: below which source draws an in-neighbour is kept. For CPU and CUDA.
#pragma once

#include "common/draw.h"

namespace lg {

// The least number not below numerator / denominator * 2^64, 0 < numerator < denominator < 2^32: a
// draw lies below it iff draw * denominator < numerator * 2^64. By long division, of two digits of 32
// bits, as device code has no numbers of 128.
LG_HD uint64_t draw_threshold(uint64_t numerator, uint64_t denominator) {
  const uint64_t high = (numerator << 32) / denominator, rest = (numerator << 32) % denominator;
  const uint64_t low = (rest << 32) / denominator, left = (rest << 32) % denominator;
  return (high << 32 | low) + (left != 0);
}

}  // namespace lg
