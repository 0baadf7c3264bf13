#include "bind/bind.h"
#include "random_walk/random_walk.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.attr("MAX_WALK_BLOCKS") = kMaxWalkBlocks;
  m.def(
      "random_walk",
      [](Array<const int64_t> indptr, Array<const Index> indices, Table table,
         Array<const int64_t> starts, int64_t length, int64_t num_walks, uint64_t end_below,
         uint64_t restart_below, uint64_t seed, uint32_t epoch, uint32_t step, uint32_t hop,
         Names names, Array<int64_t> traces) {
        random_walk<Index>({csc(indptr, indices, names),
                            starts.data(),
                            int64_t(starts.size()),
                            {length, num_walks, end_below, restart_below, entries(table)},
                            seed,
                            epoch,
                            step,
                            hop},
                           traces.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "table"_a.noconvert().none(),
      "starts"_a.noconvert(), "length"_a, "num_walks"_a, "end_below"_a, "restart_below"_a, "seed"_a,
      "epoch"_a, "step"_a, "hop"_a, "names"_a.noconvert().none(), "traces"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
