// picked_set.h: the positions that one destination node has picked so far, on CPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lg {

// Compares with every member: quickest while they are few.
class SmallPickedSet {
 public:
  static constexpr uint32_t kMaxSize = 64;

  bool contains(uint32_t position) const {
    bool found = false;
    for (uint32_t i = 0; i < size_; ++i) found |= positions_[i] == position;
    return found;
  }

  void add(uint32_t position) { positions_[size_++] = position; }

 private:
  uint32_t positions_[kMaxSize];
  uint32_t size_ = 0;
};

// Open addressing, at most half full: constant time for any fanout.
class LargePickedSet {
 public:
  void clear(uint32_t capacity) {
    uint64_t num_slots = 1;
    while (num_slots < 2 * uint64_t(capacity)) num_slots *= 2;
    slots_.assign(num_slots, kEmpty);
    mask_ = num_slots - 1;
  }

  bool contains(uint32_t position) const { return slots_[find(position)] == position; }

  void add(uint32_t position) { slots_[find(position)] = position; }

 private:
  static constexpr uint32_t kEmpty = 0xffffffffu;  // no position: degrees are below 2^32

  uint64_t find(uint32_t position) const {
    uint64_t i = (position * 0x9E3779B97F4A7C15u >> 32) & mask_;
    while (slots_[i] != kEmpty && slots_[i] != position) i = (i + 1) & mask_;
    return i;
  }

  std::vector<uint32_t> slots_;
  uint64_t mask_ = 0;
};

}  // namespace lg
