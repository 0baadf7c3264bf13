// draw_items.h: items drawn from a tree, and the factor of each draw.
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

#include <cstdint>

#include "common/draw.h"
#include "importance_tree/tree.h"

namespace lg {

// Calls drawn(item, factor) `count` times. The tree has items of positive importance: `count` of them
// or more if they are not replaced, whose importances it then loses.
// Throws SamplerConfigError: it has not.
template <class Tree, class Drawn>
void draw_items(Tree& tree, int64_t count, bool replace, const NodeDraws& draws,
                const Drawn& drawn) {
  uint64_t left = total(tree);
  for (int64_t j = 0; j < count; ++j) {
    const int64_t item = item_at(tree, draw_below64(draws, uint32_t(j), left));
    if (item >= tree.size()) {
      fail<SamplerConfigError>("importance_tree: draw ", j, " of ", count,
                               " finds no item left. Give the tree that importance_tree() makes of "
                               "this graph.");
    }
    const uint64_t importance = importance_of(tree, item);
    if (replace) {
      drawn(item, double(left) / (double(count) * double(importance)));
    } else {
      const double first = double(left) / double(importance);
      drawn(item, (first + double(count - 1 - j)) / double(count));
      take_off(tree, item, importance);
      left -= importance;
    }
  }
}

}  // namespace lg
