// uniform_positions.h: the positions that a chunk of destinations takes, uniformly among its
// in-neighbours; what is drawn, sample_uniform.h says.
//
// One version an instruction set, with equal results: the portable one for any fanout, the others
// with vectors of sixteen draws.
#pragma once

#include <cstdint>
#include <vector>

#include "common/draw.h"
#include "sample_neighbors/fanout.h"
#include "sample_neighbors/node_wise.h"
#include "sample_neighbors/picked_set.h"

namespace lg {

constexpr int kMaxUniformChunk = 16;
constexpr int64_t kVectorSlack = 64;  // entries that may be written beyond the last

struct UniformChunk {
  int64_t fanout;  // positive, or kAllNeighbors
  bool replace;

  int size;                           // of the arrays; at most kMaxUniformChunk
  NodeDraws draws[kMaxUniformChunk];  // all of one key and step
  int64_t start[kMaxUniformChunk];    // of the in-neighbours to choose from
  int64_t degree[kMaxUniformChunk];   // their number, < 2^32

  bool is_drawn(int i) const { return lg::is_drawn(degree[i], fanout, replace); }
  int64_t count(int i) const { return num_picked(degree[i], fanout, replace); }
  uint32_t num_blocks() const { return uint32_t((fanout + 3) / 4); }
};

class UniformPositions {
 public:
  // Writes start + pick, count(i) for destination i, one destination after the other; returns the
  // end of them. Up to kVectorSlack entries beyond it are overwritten.
  int64_t* choose(const UniformChunk& chunk, int64_t* position);

 private:
  int64_t* choose_portable(const UniformChunk& chunk, int64_t* position);
  void draw(const UniformChunk& chunk, int i, const uint32_t* words);

  std::vector<uint32_t> words_, pick_;
  LargePickedSet large_picked_;
};

}  // namespace lg
