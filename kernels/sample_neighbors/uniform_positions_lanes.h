// uniform_positions_lanes.h: UniformPositions::choose() for the instruction set that LG_LANES names
// (common/lanes.h).
//
// A lane is a destination: draw j of each is compared with the picks before it, as in
// sample_without_replacement(). So words are used where Philox leaves them, and no lane needs another
// but at the end, where picks are put side by side.
#pragma once

#include <algorithm>

#include "common/draw.h"
#include "sample_neighbors/vectors.h"
// Last, since it turns vector instructions on.
#include "common/draw_lanes.h"

namespace lg {
namespace {

// What draw j of the k-th is below is the degree plus this, in 32 bits.
template <class Chunk>
inline uint32_t bound_shift(const Chunk& chunk, int k, uint32_t j) {
  return chunk.replace() ? 0 : j + 1 - uint32_t(chunk.fanout_of(k));
}
template <class Chunk>
inline Vector bound_shifts(const Chunk& chunk, int first_lane, uint32_t j) {
  if constexpr (Chunk::kMixed) {
    if (chunk.replace()) return Vector::splat(0);
    // Of a number below 0, its bits turned and 1 is what negates it.
    return (Vector::load(chunk.fanout + first_lane) ^ Vector::splat(~0u)) + Vector::splat(j + 2);
  } else {
    return Vector::splat(bound_shift(chunk, first_lane, j));
  }
}

template <class Chunk>
inline Lanes steps(const Chunk& chunk, int group) {
  if constexpr (Chunk::kMixed) {
    return Lanes::load(chunk.step + group);
  } else {
    return Lanes::splat(chunk.step);
  }
}

// Draws whose first attempt does not do are made again: as draw_below() makes them, one by one.
template <class Chunk>
__attribute__((noinline)) Vector draw_singly(const Chunk& chunk, int first_lane, uint32_t j,
                                             Vector words) {
  alignas(64) uint32_t drawn[kVectorLanes];
  words.store(drawn);
  for (int l = 0; l < kVectorLanes && first_lane + l < chunk.num_drawn; ++l) {
    const int k = first_lane + l;
    if (int64_t(j) >= chunk.fanout_of(k)) continue;
    drawn[l] = draw_below(chunk.draws(k), j, chunk.degree[k] + bound_shift(chunk, k, j), drawn[l]);
  }
  return Vector::load(drawn);
}

// Draws first to first + kCount - 1, which use words of one block, of vector v of the sixteen
// destinations from `group` on: to picks[first].of[v] and so on. Lanes beyond the destinations that draw,
// and those whose fanout is no more than that, hold anything.
template <int kCount, class Chunk>
inline void pick_words(const Chunk& chunk, int group, int v, uint32_t first, const Lanes* words,
                       Lanes* picks) {
  const int first_lane = group + v * kVectorLanes;
  const Vector degree = Vector::load(chunk.degree + first_lane);
  Vector bound[kCount], drawn[kCount];
  Flags sure = Flags::splat(true);
  for (int i = 0; i < kCount; ++i) {
    bound[i] = degree + bound_shifts(chunk, first_lane, first + uint32_t(i));
    Vector low;
    drawn[i] = multiply(words[i].of[v], bound[i], low);
    sure = sure & at_least(low, bound[i]);
  }
  const LaneMask used =
      (LaneMask(1) << std::clamp(chunk.num_drawn - first_lane, 0, kVectorLanes)) - 1;
  if (__builtin_expect((~bits(sure) & used) != 0, 0)) {
    for (int i = 0; i < kCount; ++i) {
      drawn[i] = draw_singly(chunk, first_lane, first + uint32_t(i), words[i].of[v]);
    }
  }
  if (!chunk.replace()) {
    Flags found[kCount];
    for (int i = 0; i < kCount; ++i) found[i] = Flags::splat(false);
    for (uint32_t before = 0; before < first; ++before) {
      for (int i = 0; i < kCount; ++i) found[i] = found[i] | equal(drawn[i], picks[before].of[v]);
    }
    for (int i = 0; i < kCount; ++i) {
      for (int before = 0; before < i; ++before) {
        found[i] = found[i] | equal(drawn[i], drawn[before]);
      }
      drawn[i] = select(found[i], bound[i] + Vector::splat(~0u), drawn[i]);
    }
  }
  for (int i = 0; i < kCount; ++i) picks[first + uint32_t(i)].of[v] = drawn[i];
}

template <int kCount, class Chunk>
inline void pick_block(const Chunk& chunk, int group, uint32_t first, Lanes* picks) {
  Lanes words[4] = {Lanes::load(chunk.node_low + group), Lanes::load(chunk.node_high_hop + group),
                    steps(chunk, group), Lanes::splat(first / 4)};
  philox_lanes(words[0], words[1], words[2], words[3], chunk.key0, chunk.key1);
  for (int i = kCount; i < 4; ++i) picks[first + uint32_t(i)] = words[i];  // no one uses them
  for (int v = 0; v < kVectors; ++v) pick_words<kCount>(chunk, group, v, first, words, picks);
}

// What a destination that takes all takes, in fours.
struct Numbers {
  uint32_t of[kMaxVectorFanout] = {};
  constexpr Numbers() {
    for (uint32_t i = 0; i < kMaxVectorFanout; ++i) of[i] = i;
  }
};
constexpr Numbers kNumbers;

// Writes the positions of each destination in fours: what is too much is overwritten by the next
// destination's. rows: of each group, and in it of each block, four picks by destination. kBlocks: of
// the chunk; 0 for any number of them, which takes longer (some 3 % of a batch with fanouts 15, 10, 5).
template <uint32_t kBlocks>
inline int64_t* put_positions(const UniformChunk& chunk, const uint32_t* rows, int64_t* position) {
  constexpr int kBlock = 4 * kLanes;
  const uint32_t num_blocks = kBlocks ? kBlocks : chunk.num_blocks();
  for (int i = 0, k = 0; i < chunk.size; ++i) {
    const bool is_drawn = chunk.is_drawn[i];
    const uint32_t* four = is_drawn ? rows + 4 * kPlace[k] : kNumbers.of;
    const int next = is_drawn ? kBlock : 4;
    for (uint32_t j = 0; j < num_blocks; ++j, four += next) {
      store_plus(chunk.start[i], four, position + 4 * j);
    }
    position += chunk.count[i];
    k += is_drawn;
    if (k == kLanes) {
      k = 0;
      rows += num_blocks * kBlock;
    }
  }
  return position;
}

// Sixteen destinations from `group` on, whose fanouts are at most this: first a lane a destination; in the
// place of that, four words a destination. num_words: fanout, rounded up to fours, of sixteen.
template <class Chunk>
inline void pick_group(const Chunk& chunk, int group, uint32_t fanout, uint32_t num_words,
                       uint32_t* rows) {
  Lanes* picks = reinterpret_cast<Lanes*>(rows);
  uint32_t first = 0;
  for (; first + 4 <= fanout; first += 4) pick_block<4>(chunk, group, first, picks);
  if (fanout % 4 == 1) pick_block<1>(chunk, group, first, picks);
  if (fanout % 4 == 2) pick_block<2>(chunk, group, first, picks);
  if (fanout % 4 == 3) pick_block<3>(chunk, group, first, picks);
  for (uint32_t* row = rows; row < rows + num_words; row += 4 * kLanes, picks += 4) {
    store_words(picks[0], picks[1], picks[2], picks[3], row);
  }
}

inline int64_t* uniform_positions_lanes(const UniformChunk& chunk, int64_t* position) {
  const uint32_t fanout = uint32_t(chunk.fanout());
  const uint32_t num_words = chunk.num_blocks() * 4 * kLanes;
  alignas(64) uint32_t words[kMaxVectorFanout * kMaxChunk];
  uint32_t* rows = words;
  for (int group = 0; group < chunk.num_drawn; group += kLanes, rows += num_words) {
    pick_group(chunk, group, fanout, num_words, rows);
  }
  switch (chunk.num_blocks()) {
    case 2:
      return put_positions<2>(chunk, words, position);
    case 3:
      return put_positions<3>(chunk, words, position);
    case 4:
      return put_positions<4>(chunk, words, position);
    default:
      return put_positions<0>(chunk, words, position);
  }
}

}  // namespace
}  // namespace lg
