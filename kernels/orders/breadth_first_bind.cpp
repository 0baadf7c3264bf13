#include "bind/bind.h"
#include "orders/breadth_first.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  using Indptr = std::optional<Array<const int64_t>>;
  using Indices = std::optional<Array<const Index>>;
  m.def(
      "breadth_first",
      [](Array<const int64_t> indptr, Array<const Index> indices, Indptr reversed_indptr,
         Indices reversed_indices, Array<const int32_t> position, Array<const int64_t> roots,
         Array<int32_t> order, Array<int32_t> tree) {
        Csc<Index> reversed{};
        if (reversed_indptr) reversed = csc<Index>(*reversed_indptr, *reversed_indices);
        const SearchRequest<Index> request{csc<Index>(indptr, indices),
                                           reversed_indptr ? &reversed : nullptr,
                                           position.data(),
                                           int64_t(order.size()),
                                           roots.data(),
                                           int64_t(roots.size())};
        return breadth_first(request, order.data(), tree.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "reversed_indptr"_a.noconvert().none(),
      "reversed_indices"_a.noconvert().none(), "position"_a.noconvert(), "roots"_a.noconvert(),
      "order"_a.noconvert(), "tree"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
