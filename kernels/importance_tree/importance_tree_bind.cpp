#include "bind/bind.h"
#include "importance_tree/importance_tree.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "importance_tree",
      [](Array<const int64_t> indptr, Array<const Index> indices, Weights weights,
         Array<int64_t> entries) {
        importance_tree(csc(indptr, indices), edge_weights(weights), entries.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "weights"_a.noconvert().none(),
      "entries"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
