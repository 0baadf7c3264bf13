#include "bind/bind.h"
#include "partition/deal_seeds.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "deal_seeds",
      [](Array<const int64_t> indptr, Array<const Index> indices, Array<const int64_t> seeds,
         Array<const int64_t> quotas, Array<int8_t> part, Array<int64_t> num_seeds,
         Array<int64_t> num_nodes, Array<uint64_t> held, Array<uint64_t> seen, bool held_nodes,
         int64_t hops, int64_t overlap_weight, int64_t smoothing, int64_t max_edges) {
        DealState state{int64_t(quotas.size()), part.data(), num_seeds.data(),
                        num_nodes.data(),       held.data(), seen.data()};
        return deal_seeds(csc<Index>(indptr, indices), seeds.data(), int64_t(seeds.size()),
                          quotas.data(),
                          {held_nodes ? Overlap::kNodes : Overlap::kSeeds, hops, overlap_weight,
                           smoothing, max_edges},
                          state);
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "seeds"_a.noconvert(),
      "quotas"_a.noconvert(), "part"_a.noconvert(), "num_seeds"_a.noconvert(),
      "num_nodes"_a.noconvert(), "held"_a.noconvert(), "seen"_a.noconvert(), "held_nodes"_a,
      "hops"_a, "overlap_weight"_a, "smoothing"_a, "max_edges"_a, NoGil());
}

}  // namespace lg::bind
