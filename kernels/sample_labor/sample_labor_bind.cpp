#include "bind/bind.h"
#include "sample_labor/sample_labor.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "sample_labor",
      [](Workspace& workspace, Array<const int64_t> indptr, Array<const Index> indices,
         Array<const int64_t> seeds, std::vector<int64_t> fanouts, uint64_t seed, uint32_t epoch,
         uint32_t step, uint32_t hop, Names names, Bytes arena, int64_t importance,
         bool layer_dependency, bool fixed_count, bool estimate_sum, bool expand_new, bool edge_ids,
         int64_t max_local) {
        const LaborRequest<Index> request{
            csc(indptr, indices, names),
            batch_request(seeds, seed, epoch, step, hop, arena, max_local),
            std::move(fanouts),
            importance,
            layer_dependency,
            fixed_count,
            estimate_sum ? Estimate::kSum : Estimate::kMean,
            expand_new ? Expand::kNew : Expand::kAll,
            edge_ids};
        return sampled([&] { return sample_labor(workspace, request); });
      },
      "workspace"_a, "indptr"_a.noconvert(), "indices"_a.noconvert(), "seeds"_a.noconvert(),
      "fanouts"_a, "seed"_a, "epoch"_a, "step"_a, "hop"_a, "names"_a.noconvert().none(),
      "arena"_a.noconvert(), "importance"_a, "layer_dependency"_a, "fixed_count"_a,
      "estimate_sum"_a, "expand_new"_a, "edge_ids"_a, "max_local"_a = kMaxLocal);
}

}  // namespace lg::bind
