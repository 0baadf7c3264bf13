// wide_tree.h: a tree of sums with 32 children a node, which a warp searches: what tree.h is to a
// thread. Both draw the same item at a place on the line of all importances.
//
// Level 0 holds the importances; an entry of level k is the sum of the 32 entries below it. Each level
// is a multiple of 32 entries, zero behind the last one; the top level has 32. Levels lie one after
// the other.
#pragma once

#include "common/cuda/kernel.h"

namespace lg {

// Items that were drawn: Python's Drawn (ops/cuda/sampling/importance.py).
struct Drawn {
  int64_t budget;        // how many draws
  int64_t* items;        // of each draw; negative: none
  int64_t* importances;  // of each item
  double* factors;       // of each draw
};

class WideTree {
 public:
  static constexpr int kMaxLevels = 12;  // 2^60 items

  struct Item {
    int64_t number;
    uint64_t importance;
  };

  // `num_entries`: of level 0.
  __device__ WideTree(uint64_t* entries, int64_t num_entries) : entries_(entries) {
    begin_[0] = 0;
    for (int64_t size = num_entries; size > 32; size = (size / 32 + 31) / 32 * 32) {
      begin_[num_levels_] = begin_[num_levels_ - 1] + size;
      ++num_levels_;
    }
  }

  // Of all importances; by all lanes of a warp, as what follows.
  __device__ uint64_t total() const { return last(sum_of_lower(top()[lane()])); }

  // The item at `place`, 0 <= place < total().
  __device__ Item item_at(uint64_t place) const {
    Item item{0, 0};
    for (int level = num_levels_ - 1; level >= 0; --level) {
      const uint64_t sum = entries_[begin_[level] + 32 * item.number + lane()];
      const uint64_t up_to = sum_of_lower(sum);
      const uint32_t beyond = __ballot_sync(kWarp, place < up_to);
      const int chosen = beyond != 0 ? __ffs(int(beyond)) - 1 : 31;
      place -= __shfl_sync(kWarp, up_to - sum, chosen);
      item = {32 * item.number + chosen, __shfl_sync(kWarp, sum, chosen)};
    }
    return item;
  }

  __device__ void take_off(const Item& item) const {
    if (lane() < num_levels_) entries_[at(item.number, lane())] -= item.importance;
    __syncwarp(kWarp);
  }

  // By one thread; others may put back items at the same time.
  __device__ void put_back(const Item& item) const {
    for (int level = 0; level < num_levels_; ++level) {
      auto* entry = reinterpret_cast<unsigned long long*>(entries_ + at(item.number, level));
      atomicAdd(entry, (unsigned long long)(item.importance));
    }
  }

 private:
  static constexpr uint32_t kWarp = 0xffffffffu;

  __device__ static int lane() { return int(threadIdx.x % 32); }
  __device__ const uint64_t* top() const { return entries_ + begin_[num_levels_ - 1]; }
  __device__ int64_t at(int64_t item, int level) const {
    return begin_[level] + (item >> (5 * level));
  }
  __device__ static uint64_t last(uint64_t value) { return __shfl_sync(kWarp, value, 31); }

  // Of the lanes up to this one.
  __device__ static uint64_t sum_of_lower(uint64_t value) {
    for (int step = 1; step < 32; step *= 2) {
      const uint64_t lower = __shfl_up_sync(kWarp, value, step);
      if (lane() >= step) value += lower;
    }
    return value;
  }

  uint64_t* entries_;
  int64_t begin_[kMaxLevels];
  int num_levels_ = 1;
};

}  // namespace lg
