// table_block.h: tables one after the other in a block of memory, which several processes may have mapped.
//
// Without memory it gives no tables, and measures what they would take.
#pragma once

#include <cstdint>

namespace lg {

class TableBlock {
 public:
  explicit TableBlock(uint8_t* memory) : memory_(memory) {}

  template <class T>
  T* table(int64_t count) {
    num_bytes_ += count * int64_t(sizeof(T));
    return next<T>(count);
  }

  // A few counters that belong to tables.
  template <class T>
  T* state() {
    return next<T>(1);
  }

  int64_t size() const { return size_; }            // of the block so far
  int64_t num_bytes() const { return num_bytes_; }  // of the tables alone

 private:
  static constexpr int64_t kAlignment = 64;  // a line of the processor's cache

  template <class T>
  T* next(int64_t count) {
    T* const begin = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + size_);
    size_ += (count * int64_t(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  }

  uint8_t* memory_;
  int64_t size_ = 0, num_bytes_ = 0;
};

}  // namespace lg
