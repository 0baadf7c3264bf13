// draw_factor.h: the factor of a draw.
//
// Let an item's share be its importance by the sum of all. Then a sum over all items is estimated
// without bias by the sum of (value * factor) over n draws, where factor is
//   with replacement      1 / (n * share)
//                         Hansen & Hurwitz, Ann. Math. Stat. 14(4), 1943; FastGCN, section 3
//   without, draw j of n  (rest / share + n - 1 - j) / n, rest: what is left before the draw
//                         Raj, "Some estimators in sampling with varying probabilities without
//                         replacement", JASA 51, 1956
// Without replacement the first formula, which papers use there too, is biased (Chen et al.,
// "Calibrate and debias layer-wise sampling", TMLR 2023).
#pragma once

#include "common/philox.h"

namespace lg {

// `left`: the importances of all items, or of those that no draw before j has taken off.
LG_HD double draw_factor(uint64_t left, uint64_t importance, int64_t j, int64_t count,
                         bool replace) {
  if (replace) return double(left) / (double(count) * double(importance));
  return (double(left) / double(importance) + double(count - 1 - j)) / double(count);
}

}  // namespace lg
