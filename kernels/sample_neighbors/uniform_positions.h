// uniform_positions.h: the positions that a chunk of destinations takes, uniformly among its
// in-neighbours; what is drawn, sample_uniform.h says.
//
// One version an instruction set, with equal results: the portable one for any fanout, the others
// for sixteen destinations at once.
#pragma once

#include <cstdint>
#include <vector>

#include "common/draw.h"
#include "sample_neighbors/fanout.h"
#include "sample_neighbors/node_wise.h"
#include "sample_neighbors/picked_set.h"

namespace lg {

constexpr int64_t kVectorSlack = 64;  // entries that may be written beyond the last

// Some destinations of one fanout. Those that draw are also apart, side by side: vectors have no lanes
// for others.
class UniformChunk {
 public:
  static constexpr bool kMixed =
      false;  // one fanout and step for all; else: sample_typed/run_positions.h

  int size = 0;
  int64_t start[kMaxChunk];  // of the in-neighbours to choose from
  int64_t count[kMaxChunk];  // of those that are taken
  bool is_drawn[kMaxChunk];  // otherwise all are

  int num_drawn = 0;
  uint32_t key0, key1, step;  // all draws are of one key and step
  alignas(64) uint32_t node_low[kMaxChunk + 1] = {};
  alignas(64) uint32_t node_high_hop[kMaxChunk + 1] = {};
  alignas(64) uint32_t degree[kMaxChunk + 1] = {};  // all in-neighbours

  // fanout: positive, or kAllNeighbors
  void begin(int64_t fanout, bool replace) {
    fanout_ = fanout;
    replace_ = replace;
    least_drawn_ = fanout == kAllNeighbors ? INT64_MAX : replace ? 1 : fanout + 1;
    size = num_drawn = 0;
  }

  // Adds a destination of `num_neighbors` < 2^32, from `first` on, and returns how many it takes.
  int64_t add(const NodeDraws& draws, int64_t first, int64_t num_neighbors) {
    const bool draws_some = num_neighbors >= least_drawn_;  // no one knows: hence no branch
    key0 = draws.key0;
    key1 = draws.key1;
    step = draws.step;
    node_low[num_drawn] = draws.node_low;
    node_high_hop[num_drawn] = draws.node_high_hop;
    degree[num_drawn] = uint32_t(num_neighbors);
    num_drawn += draws_some;
    start[size] = first;
    is_drawn[size] = draws_some;
    return count[size++] = draws_some ? fanout_ : num_neighbors;
  }

  int64_t fanout() const { return fanout_; }
  int64_t fanout_of(int) const { return fanout_; }
  bool replace() const { return replace_; }
  uint32_t num_blocks() const { return uint32_t((fanout_ + 3) / 4); }

  // Of the k-th that draws.
  NodeDraws draws(int k) const { return {key0, key1, node_low[k], node_high_hop[k], step}; }

 private:
  int64_t fanout_ = 0;
  int64_t least_drawn_ = 0;  // is_drawn() (fanout.h), as the least degree
  bool replace_ = false;
};

class UniformPositions {
 public:
  // Writes start + pick, count[i] for destination i, one destination after the other; returns the
  // end of them. Up to kVectorSlack entries beyond it are overwritten.
  int64_t* choose(const UniformChunk& chunk, int64_t* position);

 private:
  int64_t* choose_portable(const UniformChunk& chunk, int64_t* position);
  void draw(const UniformChunk& chunk, int k, const uint32_t* words);

  std::vector<uint32_t> words_, pick_;
  LargePickedSet large_picked_;
};

}  // namespace lg
