#include "bind/bind.h"
#include "sample_weighted/sample_weighted.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.attr("MAX_WEIGHTED_FANOUT") = kMaxWeightedFanout;
  m.def(
      "sample_weighted",
      [](Workspace& workspace, Array<const int64_t> indptr, Array<const Index> indices,
         Array<const AliasEntry> table, Array<const int64_t> seeds, std::vector<int64_t> fanouts,
         uint64_t seed, uint32_t epoch, uint32_t step, uint32_t hop, Names names, Bytes arena,
         bool replace, bool expand_new, bool edge_ids, int64_t max_local) {
        const WeightedRequest<Index> request{
            csc(indptr, indices, names),
            table.data(),
            batch_request(seeds, seed, epoch, step, hop, arena, max_local),
            std::move(fanouts),
            replace,
            expand_new ? Expand::kNew : Expand::kAll,
            edge_ids};
        return sampled([&] { return sample_weighted(workspace, request); });
      },
      "workspace"_a, "indptr"_a.noconvert(), "indices"_a.noconvert(), "table"_a.noconvert(),
      "seeds"_a.noconvert(), "fanouts"_a, "seed"_a, "epoch"_a, "step"_a, "hop"_a,
      "names"_a.noconvert().none(), "arena"_a.noconvert(), "replace"_a, "expand_new"_a,
      "edge_ids"_a, "max_local"_a = kMaxLocal);
}

}  // namespace lg::bind
