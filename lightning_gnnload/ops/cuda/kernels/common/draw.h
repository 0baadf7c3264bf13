// draw.h: which Philox block serves which random choice. A draw is named, never consumed:
//
//   stream key    of (seed, epoch, tag)           one key for draws, another for ordering keys
//   draw block    of (node, hop, step, attempt)   four draws of 32 bits
//   draw j        word j & 3 of block j >> 2
//   source draw   of (node, hop, step)            one of 64 bits, which all who may draw the node share
//
// Bounds, by the counter's fields: node < 2^48, hop < 2^16, j < 2^26.
#pragma once

#include "common/philox.h"

namespace lg {

constexpr int64_t kMaxDraws = int64_t(1) << 26;
constexpr int64_t kMaxDraws64 = kMaxDraws / 2;
constexpr int64_t kMaxHops = int64_t(1) << 16;

struct StreamKey {
  uint32_t draw0, draw1;    // keys every draw of a sampler
  uint32_t order0, order1;  // keys the ordering of seeds
};

// In ASCII: what a batch draws, and what is drawn in the names of seed rows, whatever the batch.
constexpr uint32_t kKeysTag = 0x6b657973u, kRowsTag = 0x726f7773u;

LG_HD StreamKey stream_key(uint64_t seed, uint32_t epoch, uint32_t tag = kKeysTag) {
  const Words4 words = philox({epoch, 0, 0, tag}, uint32_t(seed), uint32_t(seed >> 32));
  return {words.x, words.y, words.z, words.w};
}

// All draws of one destination node at one hop.
struct NodeDraws {
  uint32_t key0, key1;
  uint32_t node_low, node_high_hop;
  uint32_t step;
};

LG_HD NodeDraws node_draws(const StreamKey& key, uint32_t step, uint32_t hop, int64_t node) {
  const uint32_t node_high = uint32_t(uint64_t(node) >> 32) & 0xffffu;
  return {key.draw0, key.draw1, uint32_t(node), node_high | hop << 16, step};
}

// Draws of different edge types at one hop are those of different hops: 16 hops below, types above.
LG_HD uint32_t typed_hop(uint32_t hop, int32_t type) { return hop | uint32_t(type + 1) << 4; }

// What philox() makes the block's words of, under draws.key0 and draws.key1.
LG_HD Words4 draw_counter(const NodeDraws& draws, uint32_t block, uint32_t attempt) {
  return {draws.node_low, draws.node_high_hop, draws.step, block | attempt << 24};
}

LG_HD Words4 draw_block(const NodeDraws& draws, uint32_t block, uint32_t attempt) {
  return philox(draw_counter(draws, block, attempt), draws.key0, draws.key1);
}

LG_HD uint32_t draw_word(const NodeDraws& draws, uint32_t j, uint32_t attempt) {
  const Words4 words = draw_block(draws, j >> 2, attempt);
  const uint32_t lane = j & 3;
  return lane == 0 ? words.x : lane == 1 ? words.y : lane == 2 ? words.z : words.w;
}

// Makes a name of a number that counts from 0: the finalizer of MurmurHash3, one to one.
LG_HD uint32_t hash32(uint32_t value) {
  value = (value ^ value >> 16) * 0x85ebca6bu;
  value = (value ^ value >> 13) * 0xc2b2ae35u;
  return value ^ value >> 16;
}

// Draw j, exactly uniform in [0, n), 1 <= n < 2^32. `word` is its first attempt, draw_word(draws, j,
// 0), which the caller has made together with others.
// Source: Lemire, "Fast random integer generation in an interval", TOMACS 29(1), 2019.
LG_HD uint32_t draw_below(const NodeDraws& draws, uint32_t j, uint32_t n, uint32_t word) {
  uint64_t product = uint64_t(word) * n;
  if (uint32_t(product) < n) {                // rarely so, unless n is large
    const uint32_t threshold = (0u - n) % n;  // 2^32 mod n: products below it come too often
    for (uint32_t attempt = 1; uint32_t(product) < threshold; ++attempt) {
      product = uint64_t(draw_word(draws, j, attempt)) * n;
    }
  }
  return uint32_t(product >> 32);
}

// The high half of a product of 128 bits, a type that device code does without.
LG_HD uint64_t high_product(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  __extension__ using uint128_t = unsigned __int128;
  return uint64_t(uint128_t(a) * b >> 64);
#endif
}

// Draw j of 64 bits, exactly uniform in [0, n), 1 <= n: its low word is draw 2 j, its high one draw
// 2 j + 1. So j < 2^25, and a stream's draws are all of one size.
LG_HD uint64_t draw_below64(const NodeDraws& draws, uint32_t j, uint64_t n) {
  const auto draw = [&](uint32_t attempt) {
    const Words4 words = draw_block(draws, j >> 1, attempt);
    return j & 1 ? words.z | uint64_t(words.w) << 32 : words.x | uint64_t(words.y) << 32;
  };
  uint64_t drawn = draw(0);
  if (drawn * n < n) {
    const uint64_t threshold = (uint64_t(0) - n) % n;  // 2^64 mod n
    for (uint32_t attempt = 1; drawn * n < threshold; ++attempt) drawn = draw(attempt);
  }
  return high_product(drawn, n);
}

// Not the number of a draw block but after 108 failed attempts: probability below 2^-108.
constexpr uint32_t kSourceBlock = 0x6c61626fu;  // "labo", in ASCII

// The source draw of a node, uniform in [0, 2^64).
LG_HD uint64_t source_draw(const NodeDraws& source) {
  const Words4 words = philox({source.node_low, source.node_high_hop, source.step, kSourceBlock},
                              source.key0, source.key1);
  return uint64_t(words.x) << 32 | words.y;
}

// Ordering key of one id: sorting ids by it shuffles them.
LG_HD uint64_t ordering_key(const StreamKey& key, int64_t id) {
  const Words4 words =
      philox({uint32_t(id), uint32_t(uint64_t(id) >> 32), 0, 0}, key.order0, key.order1);
  return words.x | uint64_t(words.y) << 32;
}

}  // namespace lg
