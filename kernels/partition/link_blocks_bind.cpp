#include "bind/bind.h"
#include "partition/link_blocks.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "link_blocks",
      [](Array<const int64_t> indptr, Array<const Index> indices, Array<const int32_t> block_of,
         int64_t num_blocks, Array<int64_t> counts) {
        link_blocks(csc<Index>(indptr, indices), block_of.data(), num_blocks, counts.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "block_of"_a.noconvert(), "num_blocks"_a,
      "counts"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
