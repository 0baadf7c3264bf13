#include "bind/bind.h"
#include "draw_nodes/draw_nodes.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "draw_nodes",
      [](Array<const int64_t> tree, int64_t budget, bool replace, uint64_t seed, uint32_t epoch,
         uint32_t step, uint32_t hop, int64_t name, Array<int64_t> nodes, Array<double> factors) {
        const int64_t num_nodes = int64_t(tree.size()) - 1;
        draw_nodes({tree.data(), num_nodes, budget, replace, seed, epoch, step, hop, name},
                   nodes.data(), factors.data());
      },
      "tree"_a.noconvert(), "budget"_a, "replace"_a, "seed"_a, "epoch"_a, "step"_a, "hop"_a,
      "name"_a, "nodes"_a.noconvert(), "factors"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
