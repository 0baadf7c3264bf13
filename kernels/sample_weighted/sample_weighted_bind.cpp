#include "bind/sampler.h"
#include "sample_weighted/sample_weighted.h"

namespace lg::bind {

LG_BIND(m) {
  m.attr("MAX_WEIGHTED_FANOUT") = kMaxWeightedFanout;
  m.def(
      "sample_weighted",
      [](const AnyInput& any, Array<const AliasEntry> table, std::vector<int64_t> fanouts,
         bool replace, bool expand_new, bool edge_ids) {
        return any.sampled([&](Workspace& workspace, const auto& input) {
          return sample_weighted(workspace,
                                 request<WeightedRequest>(input, table.data(), fanouts, replace,
                                                          expand(expand_new), edge_ids));
        });
      },
      "input"_a, "table"_a.noconvert(), "fanouts"_a, "replace"_a, "expand_new"_a, "edge_ids"_a);
}

}  // namespace lg::bind
