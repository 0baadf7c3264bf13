// distinct.h: the distinct positions among those that one destination node draws, on CPU.
//
// Both classes have one interface:
//   keep(drawn, num, pick) -> count   those of drawn[num] that none before equals, in their order;
//                                     pick[num] is not `drawn`. Comes first.
//   is_new(position, pick, count)     whether a further one differs from pick[count]
#pragma once

#include <cstdint>

#include "sample_neighbors/picked_set.h"

namespace lg {

// Compares all with all: quickest while they are few. Whether one is new cannot be predicted, so all
// are compared without a branch, and with what was drawn long before, not with what was just stored.
struct FewDistinct {
  static constexpr uint32_t kMaxSize = 48;

  static uint32_t keep(const uint32_t* drawn, uint32_t num, uint32_t* pick) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < num; ++n) {
      pick[count] = drawn[n];
      count += is_new(drawn[n], drawn, n);
    }
    return count;
  }

  static bool is_new(uint32_t position, const uint32_t* pick, uint32_t count) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; ++i) found |= pick[i] == position;
    return !found;
  }
};

class ManyDistinct {
 public:
  void clear(uint32_t capacity) { picked_.clear(capacity); }

  uint32_t keep(const uint32_t* drawn, uint32_t num, uint32_t* pick) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < num; ++n) {
      if (is_new(drawn[n], pick, count)) pick[count++] = drawn[n];
    }
    return count;
  }

  bool is_new(uint32_t position, const uint32_t*, uint32_t) {
    if (picked_.contains(position)) return false;
    picked_.add(position);
    return true;
  }

 private:
  LargePickedSet picked_;
};

}  // namespace lg
