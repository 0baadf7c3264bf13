#include "bind/runs.h"
#include "bind/sampler.h"
#include "sample_labor/sample_labor.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "sample_labor",
      [](const AnyInput& any, const AnyLists& runs, std::vector<int64_t> fanouts, int64_t num_types,
         int64_t importance, bool layer_dependency, bool fixed_count, bool estimate_sum,
         bool expand_new, bool edge_ids) {
        return any.sampled([&](Workspace& workspace, const auto& input) {
          using Index = std::decay_t<decltype(*input.graph.indices)>;
          return with_runs(runs, input.graph, [&](const auto& of_graph) {
            using Runs = std::decay_t<decltype(of_graph)>;
            return sample_labor<Index, Runs>(
                workspace,
                {input, of_graph, fanouts, num_types, importance, layer_dependency, fixed_count,
                 estimate_sum ? Estimate::kSum : Estimate::kMean, expand(expand_new), edge_ids});
          });
        });
      },
      "input"_a, "runs"_a.none(), "fanouts"_a, "num_types"_a, "importance"_a, "layer_dependency"_a,
      "fixed_count"_a, "estimate_sum"_a, "expand_new"_a, "edge_ids"_a);
}

}  // namespace lg::bind
