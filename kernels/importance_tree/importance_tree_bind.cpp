#include "bind/bind.h"
#include "importance_tree/importance_tree.h"

namespace lg::bind {
namespace {

template <class Index>
void bind_index(nb::module_& m) {
  m.def(
      "importance_tree",
      [](Array<const int64_t> indptr, Array<const Index> indices, Weights weights,
         Array<int64_t> entries) {
        importance_tree(csc(indptr, indices), edge_weights(weights), entries.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "weights"_a.noconvert().none(),
      "entries"_a.noconvert(), NoGil());
}

}  // namespace

void bind_importance_tree(nb::module_& m) {
  bind_index<int32_t>(m);
  bind_index<int64_t>(m);
}

}  // namespace lg::bind
