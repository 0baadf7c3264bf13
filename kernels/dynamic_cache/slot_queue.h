// slot_queue.h: slots in the order in which their nodes came; as many as `capacity` at most.
#pragma once

#include <cstdint>

#include "dynamic_cache/table_block.h"

namespace lg {

class SlotQueue {
 public:
  SlotQueue(TableBlock& block, int64_t capacity)
      : slots_(block.table<int32_t>(capacity)), state_(block.state<State>()), capacity_(capacity) {}

  void clear() { *state_ = {}; }
  int64_t size() const { return state_->size; }

  void push(int32_t slot) {
    slots_[place(state_->size)] = slot;
    ++state_->size;
  }

  int32_t pop() {
    const int32_t slot = slots_[state_->oldest];
    state_->oldest = place(1);
    --state_->size;
    return slot;
  }

  // The slot that leaves after `later` others, which must be fewer than there are.
  int32_t peek(int64_t later) const { return slots_[place(later)]; }

 private:
  struct State {
    int64_t oldest, size;
  };

  int64_t place(int64_t later) const {
    const int64_t place = state_->oldest + later;
    return place < capacity_ ? place : place - capacity_;
  }

  int32_t* slots_;
  State* state_;
  int64_t capacity_;
};

}  // namespace lg
