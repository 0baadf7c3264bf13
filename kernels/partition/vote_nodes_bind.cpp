#include "bind/bind.h"
#include "partition/vote_nodes.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "vote_nodes",
      [](Array<const int64_t> indptr, Array<const Index> indices, Array<const uint8_t> open,
         Maybe<uint64_t> held, Array<int32_t> part, Array<int64_t> num_own, int64_t capacity,
         int64_t begin, int64_t end) {
        Voters voters{open.data(), data(held), part.data(), num_own.data(), int64_t(num_own.size()),
                      capacity};
        vote_nodes(csc<Index>(indptr, indices), begin, end, voters);
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "open"_a.noconvert(),
      "held"_a.noconvert().none(), "part"_a.noconvert(), "num_own"_a.noconvert(), "capacity"_a,
      "begin"_a, "end"_a, NoGil());
}

}  // namespace lg::bind
