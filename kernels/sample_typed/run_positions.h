// run_positions.h: the positions that many runs take, each uniformly by a fanout and draws of its own:
// as UniformPositions does for destinations of one fanout and step.
//
// One version an instruction set, with equal results; on vectors a lane is a run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/draw.h"
#include "sample_neighbors/fanout.h"
#include "sample_neighbors/picked_set.h"
#include "sample_neighbors/vectors.h"

namespace lg {

constexpr int kMaxRuns = 256;  // in a chunk

// Runs, as UniformChunk has destinations.
struct RunChunk {
  static constexpr bool kMixed = true;

  int size = 0;
  int64_t start[kMaxRuns];
  int64_t count[kMaxRuns];
  bool is_drawn[kMaxRuns];

  int num_drawn = 0;
  uint32_t key0 = 0, key1 = 0;
  alignas(64) uint32_t node_low[kMaxRuns] = {};
  alignas(64) uint32_t node_high_hop[kMaxRuns] = {};
  alignas(64) uint32_t step[kMaxRuns] = {};
  alignas(64) uint32_t degree[kMaxRuns] = {};
  alignas(64) uint32_t fanout[kMaxRuns] = {};

  bool with_replacement = false;
  int64_t most_drawn = 0, most_taken = 0;  // by one run that draws; by any

  bool replace() const { return with_replacement; }
  int64_t fanout_of(int k) const { return fanout[k]; }

  // Of the k-th that draws.
  NodeDraws draws(int k) const { return {key0, key1, node_low[k], node_high_hop[k], step[k]}; }
};

// Fills a chunk: what it counts stays in registers, beside stores to the chunk's arrays.
class RunChunkFiller {
 public:
  RunChunkFiller(RunChunk& chunk, const StreamKey& key, bool replace)
      : chunk_(chunk), replace_(replace) {
    chunk.key0 = key.draw0;
    chunk.key1 = key.draw1;
    chunk.with_replacement = replace;
  }

  bool is_full() const { return size_ == kMaxRuns; }

  // Adds a run of `num_edges`, from `first` on, and returns how many it takes.
  int64_t add(uint32_t node_low, uint32_t node_high_hop, uint32_t step, int64_t first,
              int64_t num_edges, int64_t fanout) {
    // No one knows which: hence no branch.
    const bool draws_some =
        (fanout != kAllNeighbors) & (replace_ ? num_edges > 0 : num_edges > fanout);
    chunk_.node_low[num_drawn_] = node_low;
    chunk_.node_high_hop[num_drawn_] = node_high_hop;
    chunk_.step[num_drawn_] = step;
    chunk_.degree[num_drawn_] = uint32_t(num_edges);
    chunk_.fanout[num_drawn_] = uint32_t(fanout);
    num_drawn_ += draws_some;
    chunk_.start[size_] = first;
    chunk_.is_drawn[size_] = draws_some;
    const int64_t taken = draws_some ? fanout : num_edges;
    most_drawn_ = std::max(most_drawn_, draws_some ? fanout : 0);
    most_taken_ = std::max(most_taken_, taken);
    return chunk_.count[size_++] = taken;
  }

  void finish() {
    chunk_.size = size_;
    chunk_.num_drawn = num_drawn_;
    chunk_.most_drawn = most_drawn_;
    chunk_.most_taken = most_taken_;
  }

 private:
  RunChunk& chunk_;
  const bool replace_;
  int size_ = 0, num_drawn_ = 0;
  int64_t most_drawn_ = 0, most_taken_ = 0;
};

class RunPositions {
 public:
  // Writes start + pick, count[i] for run i, one run after the other; returns the end of them. Up to
  // kVectorSlack entries beyond it are overwritten.
  int64_t* choose(const RunChunk& chunk, int64_t* position);

 private:
  int64_t* choose_portable(const RunChunk& chunk, int64_t* position);
  void draw(const RunChunk& chunk, int k);

  std::vector<Words4> words_;
  std::vector<uint32_t> pick_;
  LargePickedSet large_picked_;
};

// RunPositions::choose(), for draws of up to kMaxVectorFanout.
int64_t* run_positions_avx2(const RunChunk& chunk, int64_t* position);
int64_t* run_positions_avx512(const RunChunk& chunk, int64_t* position);

}  // namespace lg
