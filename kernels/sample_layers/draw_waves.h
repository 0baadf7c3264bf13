// draw_waves.h: items drawn from a line without replacement, in waves.
//
// A wave draws places on what is left of the line when it begins, and passes over whoever comes again
// within it. In law that is one draw after the other, each by weight from what those before have left.
// But the places of a wave are known before the items there are, so that a line which lies in many
// places (layer_line/layer_line.h) is asked once a wave. An eighth more places than items are missing
// make up for repeats: most layers take one wave. The first wave draws as the hop does, each later
// one under a key of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/draw.h"
#include "common/signals.h"
#include "importance_tree/tree.h"
#include "sample_layers/draw_factor.h"

namespace lg {

// No draw block but after 119 failed attempts: probability below 2^-119.
constexpr uint32_t kWaveBlock = 0x77617665u;  // "wave", in ASCII

inline NodeDraws draws_of_wave(const NodeDraws& draws, uint32_t wave) {
  if (wave == 0) return draws;
  const Words4 words = philox({wave, 0, 0, kWaveBlock}, draws.key0, draws.key1);
  return {words.x, words.y, draws.node_low, draws.node_high_hop, draws.step};
}

// How many places a wave has for so many missing items.
inline int64_t places_of_wave(int64_t num_missing) {
  return std::min(num_missing + num_missing / 8 + 16, kMaxDraws64);
}

// Calls drawn(item, factor) `count` times, each with another item; the tree has more than `count` items
// of positive importance, and loses those drawn. is_new(item): whether it is asked about for the
// first time.
template <class Tree, class IsNew, class Drawn>
void draw_waves(Tree& tree, int64_t count, const NodeDraws& draws, const IsNew& is_new,
                const Drawn& drawn) {
  uint64_t left = total(tree);
  SignalWatch signals;
  int64_t num_drawn = 0;
  std::vector<std::pair<int64_t, uint64_t>> taken;
  for (uint32_t wave = 0; num_drawn < count; ++wave) {
    const NodeDraws of_wave = draws_of_wave(draws, wave);
    const uint64_t length = left;
    const int64_t num_places = places_of_wave(count - num_drawn);
    taken.clear();
    for (int64_t j = 0; j < num_places && num_drawn < count; ++j) {
      signals.after(8);  // the tree's levels
      const int64_t item = item_at(tree, draw_below64(of_wave, uint32_t(j), length));
      if (!is_new(item)) continue;
      const uint64_t importance = importance_of(tree, item);
      drawn(item, draw_factor(left, importance, num_drawn++, count, /*replace=*/false));
      taken.emplace_back(item, importance);
      left -= importance;
    }
    for (const auto& [item, importance] : taken) take_off(tree, item, importance);
  }
}

}  // namespace lg
