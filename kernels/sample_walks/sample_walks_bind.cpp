#include "bind/sampler.h"
#include "bind/walk_lists.h"
#include "sample_walks/sample_walks.h"

namespace lg::bind {

LG_BIND(m) {
  m.attr("MAX_VISITS") = kMaxVisits;
  m.def(
      "sample_walks",
      [](const AnyInput& any, const WalkRuns* runs, Table table, int64_t num_hops,
         int64_t num_neighbors, int64_t num_walks, int64_t length, uint64_t end_below,
         uint64_t restart_below, bool include_self, bool normalize, bool expand_new) {
        const WalkSettings walks{length, num_walks, end_below, restart_below, data(table)};
        return any.sampled([&](Workspace& workspace, const auto& input) {
          using Index = std::decay_t<decltype(*input.graph.indices)>;

          return with_walk_lists(runs, input.graph, [&](const auto& lists) {
            using Lists = std::decay_t<decltype(lists)>;
            return sample_walks<Index, Lists>(
                workspace, {input, lists, walks, num_hops, num_neighbors, include_self, normalize,
                            expand(expand_new)});
          });
        });
      },
      "input"_a, "runs"_a.none(), "table"_a.noconvert().none(), "num_hops"_a, "num_neighbors"_a,
      "num_walks"_a, "length"_a, "end_below"_a, "restart_below"_a, "include_self"_a, "normalize"_a,
      "expand_new"_a);
}

}  // namespace lg::bind
