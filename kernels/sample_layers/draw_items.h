// draw_items.h: items drawn from a tree, and the factor of each draw (draw_factor.h).
#pragma once

#include <cstdint>

#include "common/draw.h"
#include "common/signals.h"
#include "importance_tree/tree.h"
#include "sample_layers/draw_factor.h"

namespace lg {

// Calls drawn(item, factor) `count` times. The tree has items of positive importance: `count` of them
// or more if they are not replaced, whose importances it then loses.
// Throws SamplerConfigError: it has not.
template <class Tree, class Drawn>
void draw_items(Tree& tree, int64_t count, bool replace, const NodeDraws& draws,
                const Drawn& drawn) {
  uint64_t left = total(tree);
  SignalWatch signals;
  for (int64_t j = 0; j < count; ++j) {
    signals.after(8);  // the tree's levels
    const int64_t item = item_at(tree, draw_below64(draws, uint32_t(j), left));
    if (item >= tree.size()) {
      fail<SamplerConfigError>("importance_tree: draw ", j, " of ", count,
                               " finds no item left. Give the tree that importance_tree() makes of "
                               "this graph.");
    }
    const uint64_t importance = importance_of(tree, item);
    drawn(item, draw_factor(left, importance, j, count, replace));
    if (!replace) {
      take_off(tree, item, importance);
      left -= importance;
    }
  }
}

}  // namespace lg
