#include "bind/sampler.h"
#include "sample_layers/sample_layers.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "sample_layers",
      [](const AnyInput& any, std::vector<int64_t> budgets, int method,
         Maybe<int64_t> importance_tree, bool replace, bool normalize, bool keep_known,
         bool expand_new, bool edge_ids, int64_t num_drawn, Weights weights,
         Maybe<int64_t> drawn_nodes, Maybe<double> drawn_factors) {
        std::optional<DrawnNodes> drawn;
        if (drawn_nodes) {
          drawn = {drawn_nodes->data(), data(drawn_factors), int64_t(drawn_nodes->size())};
        }
        return any.sampled([&](Workspace& workspace, const auto& input) {
          return sample_layers(
              workspace,
              request<LayerRequest>(input, budgets, LayerMethod(method), data(importance_tree),
                                    replace, normalize, keep_known, expand(expand_new), edge_ids,
                                    num_drawn, edge_weights(weights), drawn));
        });
      },
      "input"_a, "budgets"_a, "method"_a, "importance_tree"_a.noconvert().none(), "replace"_a,
      "normalize"_a, "keep_known"_a, "expand_new"_a, "edge_ids"_a, "num_drawn"_a,
      "weights"_a.noconvert().none(), "drawn_nodes"_a.noconvert().none(),
      "drawn_factors"_a.noconvert().none());
}

}  // namespace lg::bind
