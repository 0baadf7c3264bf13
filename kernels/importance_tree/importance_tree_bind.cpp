#include "bind/bind.h"
#include "importance_tree/importance_tree.h"
#include "importance_tree/tree.h"

namespace lg::bind {

template <class Index>
static void define_importances(nb::module_& m) {
  m.def(
      "importance_tree",
      [](Array<const int64_t> indptr, Array<const Index> indices, Weights weights,
         Array<int64_t> entries) {
        importance_tree(csc(indptr, indices), edge_weights(weights), entries.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "weights"_a.noconvert().none(),
      "entries"_a.noconvert(), NoGil());
  m.def(
      "importances",
      [](Array<const int64_t> indptr, Array<const Index> indices, Weights weights,
         int64_t num_destinations, Array<int64_t> sums) {
        importances(csc(indptr, indices), edge_weights(weights), num_destinations, sums.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "weights"_a.noconvert().none(),
      "num_destinations"_a, "sums"_a.noconvert(), NoGil());
}

LG_BIND(m) {
  define_importances<int32_t>(m);
  define_importances<int64_t>(m);
  m.def(
      "build_tree",
      [](Array<int64_t> entries) { build_tree(entries.data(), int64_t(entries.size()) - 1); },
      "entries"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
