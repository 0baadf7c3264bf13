// draw_words_lanes.h: draw_words() with vectors of sixteen blocks.
#pragma once

#include <cstring>

#include "common/draw.h"
// Last, since it turns vector instructions on.
#include "common/draw_lanes.h"

namespace lg {
namespace {

inline void draw_words_lanes(const NodeDraws* draws, int count, uint32_t num_blocks,
                             uint32_t* words) {
  constexpr int kVectorWords = 4 * kLanes;
  for (; count > 0; count -= kLanes, draws += kLanes) {
    alignas(64) uint32_t node_low[kLanes], node_high_hop[kLanes];
    const int num_nodes = count < kLanes ? count : kLanes;
    for (int i = 0; i < num_nodes; ++i) {
      node_low[i] = draws[i].node_low;
      node_high_hop[i] = draws[i].node_high_hop;
    }
    BlockVectors vectors(draws->key0, draws->key1, draws->step, Lanes::load(node_low),
                         Lanes::load(node_high_hop), num_blocks);
    int64_t num_words = int64_t(num_nodes) * num_blocks * 4;
    for (; num_words >= kVectorWords; num_words -= kVectorWords, words += kVectorWords) {
      vectors.next(words);
    }
    if (num_words > 0) {
      alignas(64) uint32_t last[kVectorWords];
      vectors.next(last);
      std::memcpy(words, last, size_t(num_words) * sizeof(uint32_t));
      words += num_words;
    }
  }
}

}  // namespace
}  // namespace lg
