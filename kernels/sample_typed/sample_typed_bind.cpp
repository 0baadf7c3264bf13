#include "bind/sampler.h"
#include "sample_typed/sample_typed.h"

namespace lg::bind {

LG_BIND(m) {
  m.attr("MAX_TYPED_HOPS") = kMaxTypedHops;
  m.def(
      "sample_typed",
      [](const AnyInput& any, Array<const int64_t> run_ptr, Array<const int32_t> run_type,
         Array<const uint32_t> run_end, std::optional<Array<const uint32_t>> order,
         std::vector<int64_t> fanouts, int64_t num_types, bool replace, bool expand_new,
         bool edge_ids) {
        const EdgeTypeIndex types{run_ptr.data(), run_type.data(), run_end.data(),
                                  order ? order->data() : nullptr};
        const int64_t num_hops = num_types ? int64_t(fanouts.size()) / num_types : 0;
        return any.sampled([&](Workspace& workspace, const auto& input) {
          return sample_typed(
              workspace, request<SampleTypedRequest>(input, types, fanouts, num_types, num_hops,
                                                     replace, expand(expand_new), edge_ids));
        });
      },
      "input"_a, "run_ptr"_a.noconvert(), "run_type"_a.noconvert(), "run_end"_a.noconvert(),
      "order"_a.noconvert().none(), "fanouts"_a, "num_types"_a, "replace"_a, "expand_new"_a,
      "edge_ids"_a);
}

}  // namespace lg::bind
