#include "bind/bind.h"
#include "sample_typed/sample_typed.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.attr("MAX_TYPED_HOPS") = kMaxTypedHops;
  m.def(
      "sample_typed",
      [](Workspace& workspace, Array<const int64_t> indptr, Array<const Index> indices,
         Array<const int64_t> run_ptr, Array<const int32_t> run_type, Array<const uint32_t> run_end,
         std::optional<Array<const uint32_t>> order, Array<const int64_t> seeds,
         std::vector<int64_t> fanouts, int64_t num_types, uint64_t seed, uint32_t epoch,
         uint32_t step, uint32_t hop, Names names, Bytes arena, bool replace, bool expand_new,
         bool edge_ids) {
        const SampleTypedRequest<Index> request{
            csc(indptr, indices, names),
            {run_ptr.data(), run_type.data(), run_end.data(), order ? order->data() : nullptr},
            batch_request(seeds, seed, epoch, step, hop, arena),
            fanouts,
            num_types,
            num_types ? int64_t(fanouts.size()) / num_types : 0,
            replace,
            expand_new ? Expand::kNew : Expand::kAll,
            edge_ids};
        return sampled([&] { return sample_typed(workspace, request); });
      },
      "workspace"_a, "indptr"_a.noconvert(), "indices"_a.noconvert(), "run_ptr"_a.noconvert(),
      "run_type"_a.noconvert(), "run_end"_a.noconvert(), "order"_a.noconvert().none(),
      "seeds"_a.noconvert(), "fanouts"_a, "num_types"_a, "seed"_a, "epoch"_a, "step"_a, "hop"_a,
      "names"_a.noconvert().none(), "arena"_a.noconvert(), "replace"_a, "expand_new"_a,
      "edge_ids"_a);
}

}  // namespace lg::bind
