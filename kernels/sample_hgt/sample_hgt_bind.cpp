#include "bind/runs.h"
#include "bind/sampler.h"
#include "sample_hgt/sample_hgt.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "sample_hgt",
      [](const AnyInput& any, const DenseArrays& lists, std::vector<int64_t> num_samples,
         int64_t num_hops, int64_t max_neighbors, int64_t num_layers, bool edge_ids) {
        return any.sampled([&](Workspace& workspace, const auto& input) {
          using Index = std::remove_const_t<std::remove_pointer_t<decltype(input.graph.indices)>>;
          return lists.with([&](const auto& runs) {
            using Offset = std::remove_const_t<std::remove_pointer_t<decltype(runs.run_ptr)>>;
            return sample_hgt<Index, Offset>(workspace, {input, runs, num_samples, num_hops,
                                                         max_neighbors, num_layers, edge_ids});
          });
        });
      },
      "input"_a, "lists"_a, "num_samples"_a, "num_hops"_a, "max_neighbors"_a, "num_layers"_a,
      "edge_ids"_a);
}

}  // namespace lg::bind
