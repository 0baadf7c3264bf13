// run_positions_lanes.h: RunPositions::choose() for the instruction set that LG_LANES names
// (common/lanes.h).
#pragma once

#include <algorithm>
#include <cstring>

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
      uint32_t fanout = 0;  // what is beyond those that draw may be of an earlier chunk
      for (int l = 0; l < kLanes; ++l) fanout = std::max(fanout, chunk.fanout[group + l]);
      fanout = std::min(fanout, uint32_t(chunk.most_drawn));
      pick_group(chunk, group, fanout, (fanout + 3) / 4 * kBlock, rows);
    }
  }

  // The first four of a run, which are kBlock apart. It is the k-th that draws, if it does: no one knows, hence
  // no branch.
  const uint32_t* fours(uint32_t k, uint32_t is_drawn) const {
    const uint32_t drawn = (k / kLanes + 1) * num_words_ + 4 * kPlace[k % kLanes];
    return words_ + (drawn & (0u - is_drawn));
  }

 private:
  const uint32_t num_words_;  // of a group
  alignas(64) uint32_t words_[kMaxVectorFanout * (kMaxRuns + kLanes)];
};

// As put_positions(), with types, unless they are null. kFours: as many for every run as the one with most of them
// has, which spares a branch that cannot be predicted; 0, where these are many: for each its own.
template <int kFours>
inline void put_runs(const RunChunk& chunk, const RunRows& rows, int64_t* position,
                     int32_t* types) {
  uint32_t k = 0;
  for (int i = 0; i < chunk.size; ++i) {
    const uint32_t is_drawn = chunk.is_drawn[i];
    const int64_t start = chunk.start[i], count = chunk.count[i];
    const uint32_t* four = rows.fours(k, is_drawn);
    k += is_drawn;
    const int64_t end = kFours ? 4 * kFours : count;
    if (kFours == 0 && !is_drawn && count > kMaxVectorFanout) {
      for (int64_t j = 0; j < count; ++j) position[j] = start + j;
    } else {
      for (int64_t j = 0; j < end; j += 4, four += RunRows::kBlock) {
        store_plus(start, four, position + j);
      }
    }
    if (types) {
      const uint32_t type = chunk.type[i], type_four[4] = {type, type, type, type};
      for (int64_t j = 0; j < end; j += 4) std::memcpy(types + j, type_four, sizeof(type_four));
      types += count;
    }
    position += count;
  }
}

inline void run_positions_lanes(const RunChunk& chunk, int64_t* position, int32_t* types) {
  const RunRows rows(chunk);
  switch ((chunk.most_taken + 3) / 4) {
    case 1:
      return put_runs<1>(chunk, rows, position, types);
    case 2:
      return put_runs<2>(chunk, rows, position, types);
    case 3:
      return put_runs<3>(chunk, rows, position, types);
    case 4:
      return put_runs<4>(chunk, rows, position, types);
    default:
      return put_runs<0>(chunk, rows, position, types);
  }
}

}  // namespace
}  // namespace lg
