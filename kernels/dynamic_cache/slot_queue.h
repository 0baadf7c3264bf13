// slot_queue.h: slots in the order in which their nodes came; as many as `capacity` at most.
#pragma once

#include <cstdint>

#include "common/huge_array.h"

namespace lg {

class SlotQueue {
 public:
  explicit SlotQueue(int64_t capacity) : slots_(size_t(capacity)), capacity_(capacity) {}

  int64_t size() const { return size_; }
  int64_t num_bytes() const { return capacity_ * int64_t(sizeof(int32_t)); }

  void push(int32_t slot) {
    slots_[place(size_)] = slot;
    ++size_;
  }

  int32_t pop() {
    const int32_t slot = slots_[size_t(oldest_)];
    oldest_ = int64_t(place(1));
    --size_;
    return slot;
  }

  // The slot that leaves after `later` others, which must be fewer than there are.
  int32_t peek(int64_t later) const { return slots_[place(later)]; }

 private:
  size_t place(int64_t later) const {
    const int64_t place = oldest_ + later;
    return size_t(place < capacity_ ? place : place - capacity_);
  }

  HugeArray<int32_t> slots_;
  int64_t capacity_;
  int64_t oldest_ = 0, size_ = 0;
};

}  // namespace lg
