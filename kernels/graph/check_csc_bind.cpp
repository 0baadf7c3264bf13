#include "bind/bind.h"
#include "graph/check_csc.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "check_csc",
      [](Array<const int64_t> indptr, Array<const Index> indices) {
        check_csc(indptr.data(), int64_t(indptr.size()) - 1, indices.data(),
                  int64_t(indices.size()));
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
