// budget.h: how much of a layer is drawn.
#pragma once

#include "common/philox.h"

namespace lg {

constexpr int64_t kWholeLayer = -1;  // as a budget

// Whether a hop draws nothing, since the budget is enough for all items.
LG_HD bool takes_all(int64_t budget, bool replace, int64_t num_items) {
  return budget == kWholeLayer || (!replace && budget >= num_items);
}

}  // namespace lg
