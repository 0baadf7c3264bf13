#include "bind/bind.h"
#include "check_csc/check_csc.h"

namespace lg::bind {
namespace {

template <class Index>
void bind_index(nb::module_& m) {
  m.def(
      "check_csc",
      [](Array<const int64_t> indptr, Array<const Index> indices) {
        check_csc(indptr.data(), int64_t(indptr.size()) - 1, indices.data(),
                  int64_t(indices.size()));
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), NoGil());
}

}  // namespace

void bind_check_csc(nb::module_& m) {
  bind_index<int32_t>(m);
  bind_index<int64_t>(m);
}

}  // namespace lg::bind
