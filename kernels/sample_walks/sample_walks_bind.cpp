#include "bind/bind.h"
#include "sample_walks/sample_walks.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.attr("MAX_VISITS") = kMaxVisits;
  m.def(
      "sample_walks",
      [](Workspace& workspace, Array<const int64_t> indptr, Array<const Index> indices, Table table,
         Array<const int64_t> seeds, int64_t num_hops, int64_t num_neighbors, int64_t num_walks,
         int64_t length, uint64_t end_below, uint64_t restart_below, uint64_t seed, uint32_t epoch,
         uint32_t step, uint32_t hop, Names names, Bytes arena, bool include_self, bool normalize,
         bool expand_new, int64_t max_local) {
        const WalkSampleRequest<Index> request{
            csc(indptr, indices, names),
            batch_request(seeds, seed, epoch, step, hop, arena, max_local),
            {length, num_walks, end_below, restart_below, entries(table)},
            num_hops,
            num_neighbors,
            include_self,
            normalize,
            expand_new ? Expand::kNew : Expand::kAll};
        return sampled([&] { return sample_walks(workspace, request); });
      },
      "workspace"_a, "indptr"_a.noconvert(), "indices"_a.noconvert(), "table"_a.noconvert().none(),
      "seeds"_a.noconvert(), "num_hops"_a, "num_neighbors"_a, "num_walks"_a, "length"_a,
      "end_below"_a, "restart_below"_a, "seed"_a, "epoch"_a, "step"_a, "hop"_a,
      "names"_a.noconvert().none(), "arena"_a.noconvert(), "include_self"_a, "normalize"_a,
      "expand_new"_a, "max_local"_a = kMaxLocal);
}

}  // namespace lg::bind
