#include "bind/sampler.h"
#include "sample_shadow/sample_shadow.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "sample_shadow",
      [](const AnyInput& any, std::vector<int64_t> fanouts, int64_t num_layers, bool edge_ids) {
        return any.sampled([&](Workspace& workspace, const auto& input) {
          return sample_shadow(workspace,
                               request<ShadowRequest>(input, fanouts, num_layers, edge_ids));
        });
      },
      "input"_a, "fanouts"_a, "num_layers"_a, "edge_ids"_a);
}

}  // namespace lg::bind
