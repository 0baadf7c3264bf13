#include "bind/bind.h"
#include "partition/grow_blocks.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "grow_blocks",
      [](Array<const int64_t> indptr, Array<const Index> indices, Array<const int64_t> sources,
         int64_t most, Array<int32_t> block_of, Array<int32_t> sizes) {
        const GrowRequest<Index> request{csc<Index>(indptr, indices), sources.data(),
                                         int64_t(sources.size()), most};
        return grow_blocks(request, block_of.data(), sizes.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "sources"_a.noconvert(), "most"_a,
      "block_of"_a.noconvert(), "sizes"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
