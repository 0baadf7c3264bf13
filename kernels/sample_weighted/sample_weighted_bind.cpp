#include "bind/queries.h"
#include "bind/runs.h"
#include "bind/sampler.h"
#include "sample_weighted/sample_weighted.h"

namespace lg::bind {

LG_BIND(m) {
  m.attr("MAX_WEIGHTED_FANOUT") = kMaxWeightedFanout;
  m.def(
      "sample_weighted",
      [](const AnyInput& any, const AnyLists& runs, Array<const AliasEntry> table,
         std::vector<int64_t> fanouts, int64_t num_types, bool replace, bool expand_new,
         bool edge_ids, const QueryArrays* queries) {
        return any.sampled([&](Workspace& workspace, const auto& input) {
          using Index = std::decay_t<decltype(*input.graph.indices)>;
          return with_runs(runs, input.graph, [&](const auto& of_graph) {
            using Runs = std::decay_t<decltype(of_graph)>;
            return sample_weighted<Index, Runs>(
                workspace, {input, of_graph, table.data(), fanouts, num_types, replace,
                            expand(expand_new), edge_ids, queries_of(queries)});
          });
        });
      },
      "input"_a, "runs"_a.none(), "table"_a.noconvert(), "fanouts"_a, "num_types"_a, "replace"_a,
      "expand_new"_a, "edge_ids"_a, "queries"_a.none());
}

}  // namespace lg::bind
