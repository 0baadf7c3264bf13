#include "bind/bind.h"
#include "partition/join_blocks.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "join_blocks",
      [](Array<const int64_t> indptr, Array<const Index> indices, Array<const int32_t> block_of,
         Array<const int32_t> sizes, Array<const uint8_t> is_large, int64_t most,
         Array<int32_t> joins) {
        const BlockSizes blocks{sizes.data(), is_large.data(), int64_t(sizes.size()), most};
        join_blocks(csc<Index>(indptr, indices), block_of.data(), blocks, joins.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "block_of"_a.noconvert(),
      "sizes"_a.noconvert(), "is_large"_a.noconvert(), "most"_a, "joins"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
