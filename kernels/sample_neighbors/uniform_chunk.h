// uniform_chunk.h: the positions that a chunk of destinations takes, uniformly among its
// in-neighbours; what is drawn, sample_uniform.h says.
//
// One version an instruction set, with equal results: the portable one for any fanout, the others
// with vectors of sixteen draws.
#pragma once

#include <cstdint>

#include "common/draw.h"

namespace lg {

class LargePickedSet;  // sample_neighbors/picked_set.h

constexpr int kMaxUniformChunk = 16;
constexpr int64_t kMaxVectorFanout = 64;
constexpr int64_t kVectorSlack = 64;  // entries that may be written beyond the last

struct UniformChunk {
  StreamKey key;
  uint32_t step, hop;
  uint32_t fanout;  // >= 1
  bool replace;

  int size;  // of the arrays; at most kMaxUniformChunk
  int64_t node[kMaxUniformChunk];
  int64_t start[kMaxUniformChunk];   // of the node's in-neighbours
  int64_t degree[kMaxUniformChunk];  // < 2^32

  // Destinations with fewer in-neighbours take them all.
  bool is_drawn(int i) const { return replace ? degree[i] > 0 : degree[i] > int64_t(fanout); }
  int64_t count(int i) const { return is_drawn(i) ? int64_t(fanout) : degree[i]; }
  uint32_t num_blocks() const { return (fanout + 3) / 4; }
};

// Scratch memory: uint32 [kMaxUniformChunk * 4 * num_blocks] words, and [fanout] picks.
//   out  position    start + pick: count(i) for destination i, one destination after the other
// `words` and `position` need kVectorSlack entries more: vectors are written whole.
void uniform_positions(const UniformChunk& chunk, uint32_t* words, uint32_t* pick,
                       LargePickedSet& picked, int64_t* position);

// For fanouts up to kMaxVectorFanout.
void uniform_positions_avx2(const UniformChunk& chunk, uint32_t* words, int64_t* position);
void uniform_positions_avx512(const UniformChunk& chunk, uint32_t* words, int64_t* position);

}  // namespace lg
