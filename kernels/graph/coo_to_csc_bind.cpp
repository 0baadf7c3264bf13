#include "bind/bind.h"
#include "graph/coo_to_csc.h"

namespace lg::bind {
namespace {

template <class Src, class Dst>
void bind_ids(nb::module_& m) {
  m.def(
      "coo_to_csc",
      [](Array<const Src> src, Array<const Dst> dst, Array<int64_t> indptr, Array<Src> indices,
         std::optional<Array<int64_t>> order) {
        coo_to_csc(src.data(), dst.data(), int64_t(src.size()), int64_t(indptr.size()) - 1,
                   indptr.data(), indices.data(), data(order));
      },
      "src"_a.noconvert(), "dst"_a.noconvert(), "indptr"_a.noconvert(), "indices"_a.noconvert(),
      "order"_a.noconvert().none(), NoGil());
}

}  // namespace

LG_BIND(m) {
  bind_ids<int32_t, int32_t>(m);
  bind_ids<int32_t, int64_t>(m);
  bind_ids<int64_t, int32_t>(m);
  bind_ids<int64_t, int64_t>(m);
}

}  // namespace lg::bind
