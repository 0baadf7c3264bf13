#include "bind/bind.h"
#include "build_alias/build_alias.h"

namespace lg::bind {
namespace {

template <class Weight>
void bind_weight(nb::module_& m) {
  m.def(
      "build_alias",
      [](Array<const int64_t> indptr, Array<const Weight> weights, Array<AliasEntry> table) {
        build_alias(indptr.data(), int64_t(indptr.size()) - 1, weights.data(), table.data());
      },
      "indptr"_a.noconvert(), "weights"_a.noconvert(), "table"_a.noconvert(), NoGil());
}

}  // namespace

LG_BIND(m) {
  m.attr("NO_NEIGHBOR") = kNoNeighbor;
  bind_weight<float>(m);
  bind_weight<double>(m);
}

}  // namespace lg::bind
