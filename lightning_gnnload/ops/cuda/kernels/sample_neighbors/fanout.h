// fanout.h: how many of its in-neighbours a destination takes.
#pragma once

#include "common/philox.h"

namespace lg {

constexpr int64_t kAllNeighbors = -1;  // as a fanout

// Destinations with fewer in-neighbours than the fanout take them all.
LG_HD bool is_drawn(int64_t degree, int64_t fanout, bool replace) {
  if (fanout == kAllNeighbors) return false;
  return replace ? degree > 0 : degree > fanout;
}
LG_HD int64_t num_picked(int64_t degree, int64_t fanout, bool replace) {
  return is_drawn(degree, fanout, replace) ? fanout : degree;
}

}  // namespace lg
