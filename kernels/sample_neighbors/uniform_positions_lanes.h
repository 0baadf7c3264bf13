// uniform_positions_lanes.h: UniformPositions::choose() with vectors of sixteen draws, for the instruction set
// that LG_LANES names (common/lanes.h).
#pragma once

#include "common/draw.h"
#include "sample_neighbors/vectors.h"
// Last, since it turns vector instructions on.
#include "common/draw_lanes.h"

namespace lg {
namespace {

// The draws of one node: draw j in lane j % 16 of row j / 16, below bound + j * growth.
template <int kRows>
inline void draw_rows(const NodeDraws& draws, const uint32_t* words, uint32_t fanout,
                      uint32_t bound, uint32_t growth, Lanes (&drawn)[kRows]) {
  Lanes low, bounds = Lanes::splat(bound);
  if (growth) bounds = bounds + first_lanes();
  for (int row = 0; row < kRows; ++row, bounds = bounds + Lanes::splat(growth * kLanes)) {
    drawn[row] = multiply(Lanes::load(words + row * kLanes), bounds, low);
    LaneMask unsure = less(low, bounds) & below(int(fanout) - row * kLanes);
    if (__builtin_expect(unsure != 0, 0)) {  // as in draw_below()
      alignas(64) uint32_t values[kLanes];
      drawn[row].store(values);
      for (; unsure; unsure &= unsure - 1) {
        const uint32_t lane = uint32_t(__builtin_ctz(unsure)), j = row * kLanes + lane;
        values[lane] = draw_below(draws, j, bound + j * growth, words[j]);
      }
      drawn[row] = Lanes::load(values);
    }
  }
}

// As sample_without_replacement(): a draw that was picked before becomes `last`, which is
// first_last + j for draw j.
template <int kRows>
inline void replace_repeats(uint32_t fanout, uint32_t first_last, Lanes (&drawn)[kRows]) {
  LaneMask repeated[kRows];
  for (int row = 0; row < kRows; ++row) {
    LaneMask mask = repeats(drawn[row]);
    for (int before = 0; before < row; ++before) mask |= members(drawn[row], drawn[before]);
    repeated[row] = mask & below(int(fanout) - row * kLanes);
  }
  // A draw may also equal the `last` of an earlier one that was replaced. That makes it one to
  // replace in turn, and so on.
  const auto spread = [&] {
    bool more = false;
    for (int row = 0; row < kRows; ++row) {
      LaneMask mask = repeated[row];
      for (int before = 0; before <= row; ++before) {
        const Lanes draw = drawn[row] - Lanes::splat(first_last + before * kLanes);
        mask |= odd(Lanes::splat(repeated[before]) >> draw);
      }
      mask &= below(int(fanout) - row * kLanes);
      more |= mask != repeated[row];
      repeated[row] = mask;
    }
    return more;
  };
  spread();  // not worth a branch: whether it is needed cannot be predicted
  while (spread()) continue;
  Lanes last = Lanes::splat(first_last) + first_lanes();
  for (int row = 0; row < kRows; ++row, last = last + Lanes::splat(kLanes)) {
    drawn[row] = select(repeated[row], last, drawn[row]);
  }
}

template <int kRows>
int64_t* positions_of_rows(const UniformChunk& chunk, uint32_t* words, int64_t* position) {
  constexpr int kRowSize = kRows * kLanes;
  const uint32_t fanout = uint32_t(chunk.fanout);
  // The destinations that draw, side by side.
  NodeDraws draws[kMaxUniformChunk];
  alignas(64) uint32_t node_low[kLanes] = {}, node_high_hop[kLanes] = {};
  uint32_t degree[kMaxUniformChunk];
  int num_drawn = 0;
  for (int i = 0; i < chunk.size; ++i) {
    draws[num_drawn] = chunk.draws[i];
    node_low[num_drawn] = draws[num_drawn].node_low;
    node_high_hop[num_drawn] = draws[num_drawn].node_high_hop;
    degree[num_drawn] = uint32_t(chunk.degree[i]);
    num_drawn += chunk.is_drawn(i);
  }
  BlockVectors vectors(draws->key0, draws->key1, draws->step, Lanes::load(node_low),
                       Lanes::load(node_high_hop), chunk.num_blocks());
  for (int done = 0; done < num_drawn * int(chunk.num_blocks()); done += kLanes) {
    vectors.next(words + 4 * done);
  }

  // One row a destination that draws; the row before them is for those that take all.
  alignas(64) uint32_t picks[(1 + kMaxUniformChunk) * kRowSize];
  for (int row = 0; row < kRows; ++row) {
    (first_lanes() + Lanes::splat(row * kLanes)).store(picks + row * kLanes);
  }
  uint32_t* pick = picks + kRowSize;
  for (int i = 0; i < num_drawn; ++i, words += 4 * chunk.num_blocks(), pick += kRowSize) {
    Lanes drawn[kRows];
    if (chunk.replace) {
      draw_rows(draws[i], words, fanout, degree[i], 0, drawn);
    } else {
      const uint32_t first_last = degree[i] - fanout;
      draw_rows(draws[i], words, fanout, first_last + 1, 1, drawn);
      replace_repeats(fanout, first_last, drawn);
    }
    for (int row = 0; row < kRows; ++row) drawn[row].store(pick + row * kLanes);
  }

  // Whole rows are stored, and what is too much overwritten by the next.
  const uint32_t* next = picks + kRowSize;
  for (int i = 0; i < chunk.size; ++i) {
    const bool is_drawn = chunk.is_drawn(i);
    const uint32_t* row = is_drawn ? next : picks;
    next += is_drawn ? kRowSize : 0;
    for (int r = 0; r < kRows; ++r) {
      store_plus(chunk.start[i], Lanes::load(row + r * kLanes), position + r * kLanes);
    }
    position += chunk.count(i);
  }
  return position;
}

inline int64_t* uniform_positions_lanes(const UniformChunk& chunk, uint32_t* words,
                                        int64_t* position) {
  static_assert(kMaxUniformChunk == kLanes && kMaxVectorFanout == 4 * kLanes);
  switch ((chunk.fanout + kLanes - 1) / kLanes) {
    case 1:
      return positions_of_rows<1>(chunk, words, position);
    case 2:
      return positions_of_rows<2>(chunk, words, position);
    default:
      return positions_of_rows<4>(chunk, words, position);
  }
}

}  // namespace
}  // namespace lg
