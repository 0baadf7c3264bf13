#include "bind/bind.h"
#include "spread_parts/spread_parts.h"

namespace lg::bind {
namespace {

template <class Index>
void bind_index(nb::module_& m) {
  m.def(
      "spread_parts",
      [](Array<const int64_t> indptr, Array<const Index> indices, Array<const uint64_t> fresh,
         Array<uint64_t> held, Array<uint64_t> next) {
        return spread_parts(csc<Index>(indptr, indices), fresh.data(), held.data(), next.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "fresh"_a.noconvert(), "held"_a.noconvert(),
      "next"_a.noconvert(), NoGil());
}

}  // namespace

void bind_spread_parts(nb::module_& m) {
  bind_index<int32_t>(m);
  bind_index<int64_t>(m);
}

}  // namespace lg::bind
