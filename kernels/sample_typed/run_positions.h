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
constexpr int64_t kManyEdges =
    int64_t(1) << 20;            // of a chunk, but for a run or destination: signals wait for it
constexpr int kLanesBeyond = 8;  // entries that may be written beyond the last

// What the runs of one edge type take at a hop.
struct RunRule {
  uint32_t fanout;      // of runs that draw (fanout.h)
  uint32_t most_whole;  // the most edges of a run that does not
  uint32_t high_hop;    // by which the type draws, where NodeDraws has it

  static RunRule of(int64_t fanout, bool replace, uint32_t hop) {
    const bool takes_all = fanout == kAllNeighbors;
    return {uint32_t(fanout), takes_all ? ~0u : replace ? 0 : uint32_t(fanout), hop << 16};
  }
};

// Runs, as UniformChunk has destinations.
struct RunChunk {
  static constexpr bool kMixed = true;
  static constexpr int kRoom = kMaxRuns + kLanesBeyond;

  int size = 0;
  int64_t start[kRoom];
  uint32_t count[kRoom];
  uint32_t type[kRoom];
  uint32_t is_drawn[kRoom];  // 0 or 1

  int num_drawn = 0;
  uint32_t key0 = 0, key1 = 0;
  alignas(64) uint32_t node_low[kRoom] = {};
  alignas(64) uint32_t node_high_hop[kRoom] = {};
  alignas(64) uint32_t step[kRoom] = {};
  alignas(64) uint32_t degree[kRoom] = {};
  alignas(64) uint32_t fanout[kRoom] = {};

  bool with_replacement = false;
  int64_t most_drawn = 0, most_taken = 0;  // by one run that draws; by any

  bool replace() const { return with_replacement; }
  int64_t fanout_of(int k) const { return fanout[k]; }

  void begin(const StreamKey& key, bool replace_some) {
    key0 = key.draw0;
    key1 = key.draw1;
    with_replacement = replace_some;
  }

  // Of the k-th that draws.
  NodeDraws draws(int k) const { return {key0, key1, node_low[k], node_high_hop[k], step[k]}; }
};

// Fills a chunk: what it counts stays in registers, beside stores to the chunk's arrays.
class RunChunkFiller {
 public:
  RunChunkFiller(RunChunk& chunk, const StreamKey& key, bool replace) : chunk_(chunk) {
    chunk.begin(key, replace);
  }

  int size() const { return size_; }
  bool has_room(int64_t num_runs) const { return size_ + num_runs <= kMaxRuns; }

  // Adds a run of `num_edges` < 2^32, from `first` on, unless it takes none; returns how many it takes. `draws` are
  // the destination's but for the hop.
  int64_t add(const NodeDraws& draws, int32_t type, const RunRule& rule, int64_t first,
              int64_t num_edges) {
    // No one knows which: hence no branch.
    const bool draws_some = num_edges > int64_t(rule.most_whole);
    const uint32_t taken = draws_some ? rule.fanout : uint32_t(num_edges);
    chunk_.node_low[num_drawn_] = draws.node_low;
    chunk_.node_high_hop[num_drawn_] = draws.node_high_hop | rule.high_hop;
    chunk_.step[num_drawn_] = draws.step;
    chunk_.degree[num_drawn_] = uint32_t(num_edges);
    chunk_.fanout[num_drawn_] = rule.fanout;
    chunk_.start[size_] = first;
    chunk_.count[size_] = taken;
    chunk_.type[size_] = uint32_t(type);
    chunk_.is_drawn[size_] = draws_some;
    num_drawn_ += draws_some & (taken > 0);
    size_ += taken > 0;
    most_drawn_ = std::max(most_drawn_, draws_some ? taken : 0);
    most_taken_ = std::max(most_taken_, taken);
    return taken;
  }

  void finish() {
    chunk_.size = size_;
    chunk_.num_drawn = num_drawn_;
    chunk_.most_drawn = most_drawn_;
    chunk_.most_taken = most_taken_;
  }

 private:
  RunChunk& chunk_;
  int size_ = 0, num_drawn_ = 0;
  uint32_t most_drawn_ = 0, most_taken_ = 0;
};

class RunPositions {
 public:
  // Writes start + pick, count[i] for run i, one run after the other, and as often its type, unless `types` is null.
  // Up to kVectorSlack entries beyond the last are overwritten.
  void choose(const RunChunk& chunk, int64_t* position, int32_t* types);

 private:
  void choose_portable(const RunChunk& chunk, int64_t* position, int32_t* types);
  void draw(const RunChunk& chunk, int k);

  std::vector<Words4> words_;
  std::vector<uint32_t> pick_;
  LargePickedSet large_picked_;
};

// RunPositions::choose(), for draws of up to kMaxVectorFanout.
void run_positions_avx2(const RunChunk& chunk, int64_t* position, int32_t* types);
void run_positions_avx512(const RunChunk& chunk, int64_t* position, int32_t* types);

}  // namespace lg
