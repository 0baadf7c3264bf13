#include "bind/bind.h"
#include "partition/spread_parts.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "spread_parts",
      [](Array<const int64_t> indptr, Array<const Index> indices, Array<const uint64_t> fresh,
         Array<uint64_t> held, Array<uint64_t> next) {
        return spread_parts(csc<Index>(indptr, indices), fresh.data(), held.data(), next.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "fresh"_a.noconvert(), "held"_a.noconvert(),
      "next"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
