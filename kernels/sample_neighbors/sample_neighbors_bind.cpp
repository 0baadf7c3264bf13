#include "bind/sampler.h"
#include "sample_neighbors/sample_neighbors.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "sample_neighbors",
      [](const AnyInput& any, std::vector<int64_t> fanouts, bool replace, bool expand_new,
         bool edge_ids) {
        return any.sampled([&](Workspace& workspace, const auto& input) {
          return sample_neighbors(workspace, request<SampleRequest>(input, fanouts, replace,
                                                                    expand(expand_new), edge_ids));
        });
      },
      "input"_a, "fanouts"_a, "replace"_a, "expand_new"_a, "edge_ids"_a);
}

}  // namespace lg::bind
