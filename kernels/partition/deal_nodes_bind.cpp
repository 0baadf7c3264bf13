#include "bind/bind.h"
#include "partition/deal_nodes.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "deal_nodes",
      [](Array<const int64_t> indptr, Array<const Index> indices, Array<const uint8_t> is_seed,
         int64_t num_parts, int64_t node_capacity, int64_t seed_capacity, Array<int32_t> part_of) {
        const DealRequest<Index> request{csc<Index>(indptr, indices), is_seed.data(), num_parts,
                                         node_capacity, seed_capacity};
        return deal_nodes(request, part_of.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "is_seed"_a.noconvert(), "num_parts"_a,
      "node_capacity"_a, "seed_capacity"_a, "part_of"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
