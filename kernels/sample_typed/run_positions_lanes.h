// run_positions_lanes.h: RunPositions::choose() for the instruction set that LG_LANES names
// (common/lanes.h).
#pragma once

#include <algorithm>

#include "sample_typed/run_positions.h"
// Last, since it turns vector instructions on.
#include "sample_neighbors/uniform_positions_lanes.h"

namespace lg {
namespace {

// What pick_group() makes of a chunk's runs, a group after the other; before these, in one more group, what
// runs take that take all: so that one offset tells where a run's fours are.
class RunRows {
 public:
  static constexpr int kBlock = 4 * kLanes;

  explicit RunRows(const RunChunk& chunk)
      // Room for what put_runs() reads, though a group of small fanouts writes less.
      : num_words_(
            uint32_t(std::min(std::max(chunk.most_drawn, chunk.most_taken), kMaxVectorFanout) + 3) /
            4 * kBlock) {
    uint32_t* rows = words_;
    for (uint32_t w = 0; w < num_words_; w += kBlock)
      std::copy_n(kNumbers.of + w / kLanes, 4, rows + w);
    for (int group = 0; group < chunk.num_drawn; group += kLanes) {
      rows += num_words_;
      const int end = std::min(group + kLanes, chunk.num_drawn);
      const uint32_t fanout = *std::max_element(chunk.fanout + group, chunk.fanout + end);
      pick_group(chunk, group, fanout, (fanout + 3) / 4 * kBlock, rows);
    }
  }

  // The first four of a run, which are kBlock apart. It is the k-th that draws, if it does: no one knows, hence
  // no branch.
  const uint32_t* fours(uint32_t k, bool is_drawn) const {
    const uint32_t drawn = (k / kLanes + 1) * num_words_ + 4 * kPlace[k % kLanes];
    return words_ + (drawn & (0u - uint32_t(is_drawn)));
  }

 private:
  const uint32_t num_words_;  // of a group
  alignas(64) uint32_t words_[kMaxVectorFanout * (kMaxRuns + kLanes)];
};

// As put_positions(). kFours: as many for every run as the one with most of them has, which spares a branch that
// cannot be predicted; 0, where these are many: for each its own.
template <int kFours>
inline int64_t* put_runs(const RunChunk& chunk, const RunRows& rows, int64_t* position) {
  uint32_t k = 0;
  for (int i = 0; i < chunk.size; ++i) {
    const bool is_drawn = chunk.is_drawn[i];
    const int64_t start = chunk.start[i], count = chunk.count[i];
    const uint32_t* four = rows.fours(k, is_drawn);
    k += is_drawn;
    if (kFours == 0 && !is_drawn && count > kMaxVectorFanout) {
      for (int64_t j = 0; j < count; ++j) position[j] = start + j;
    } else {
      const int64_t end = kFours ? 4 * kFours : count;
      for (int64_t j = 0; j < end; j += 4, four += RunRows::kBlock) {
        store_plus(start, four, position + j);
      }
    }
    position += count;
  }
  return position;
}

inline int64_t* run_positions_lanes(const RunChunk& chunk, int64_t* position) {
  const RunRows rows(chunk);
  switch ((chunk.most_taken + 3) / 4) {
    case 1:
      return put_runs<1>(chunk, rows, position);
    case 2:
      return put_runs<2>(chunk, rows, position);
    case 3:
      return put_runs<3>(chunk, rows, position);
    case 4:
      return put_runs<4>(chunk, rows, position);
    default:
      return put_runs<0>(chunk, rows, position);
  }
}

}  // namespace
}  // namespace lg
