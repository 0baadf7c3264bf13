// choices.h: where a fuzz case comes from. Whatever a target chooses, it chooses here, so that a
// case is made again from its number or, under libFuzzer, from its bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "common/philox.h"

namespace lg::fuzz {

class Choices {
 public:
  // Case `number` of `seed`: words of a counter-based generator.
  Choices(uint64_t seed, uint64_t number) : seed_(seed), number_(number) {}

  // What libFuzzer evolves; zeros follow the last byte.
  Choices(const uint8_t* bytes, size_t count) : bytes_(bytes), left_(count) {}

  uint32_t word() { return bytes_ ? next_bytes() : next_draw(); }

  uint64_t wide() {
    const uint64_t high = word();
    return high << 32 | word();
  }

  // In [0, count), count >= 1. Some values are more likely by a hair, which does not matter here.
  int64_t below(int64_t count) { return int64_t(wide() % uint64_t(count)); }

  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }

  // Not for zeros: what is rare should stay so where libFuzzer's bytes end.
  bool one_in(int64_t count) { return below(count) == count - 1; }

  bool flag() { return one_in(2); }

  // In [0, most], small ones more often: each number of digits is as likely.
  int64_t size(int64_t most) {
    int64_t reach = 1;
    while (reach <= most && !one_in(6)) reach *= 2;
    return below(std::min(reach, most) + 1);
  }

  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(int64_t(values.size()))];
  }

 private:
  uint32_t next_draw() {
    if (lane_ == 4) {
      words_ = philox({block_++, uint32_t(number_), uint32_t(number_ >> 32), 0}, uint32_t(seed_),
                      uint32_t(seed_ >> 32));
      lane_ = 0;
    }
    const int lane = lane_++;
    return lane == 0 ? words_.x : lane == 1 ? words_.y : lane == 2 ? words_.z : words_.w;
  }

  uint32_t next_bytes() {
    uint32_t word = 0;
    for (int i = 0; i < 4 && left_ > 0; ++i, --left_) word = word << 8 | *bytes_++;
    return word;
  }

  uint64_t seed_ = 0, number_ = 0;
  uint32_t block_ = 0;
  int lane_ = 4;
  Words4 words_{};

  const uint8_t* bytes_ = nullptr;
  size_t left_ = 0;
};

}  // namespace lg::fuzz
