#include "bind/bind.h"
#include "graph/edge_types.h"

namespace lg::bind {

LG_BIND(m) {
  m.attr("MAX_EDGE_TYPES") = kMaxEdgeTypes;
  m.def(
      "sort_edge_types",
      [](Array<const int64_t> indptr, Array<const int32_t> types, Array<int64_t> order) {
        sort_edge_types(indptr.data(), int64_t(indptr.size()) - 1, types.data(), order.data());
      },
      "indptr"_a.noconvert(), "types"_a.noconvert(), "order"_a.noconvert(), NoGil());
  m.def(
      "count_edge_type_runs",
      [](Array<const int64_t> indptr, Array<const int32_t> types, Array<int64_t> first_run) {
        return count_edge_type_runs(indptr.data(), int64_t(indptr.size()) - 1, types.data(),
                                    first_run.data());
      },
      "indptr"_a.noconvert(), "types"_a.noconvert(), "first_run"_a.noconvert(), NoGil());
  m.def(
      "index_edge_types",
      [](Array<const int64_t> indptr, Array<const int32_t> types, Array<int32_t> run_type,
         Array<int64_t> run_ptr) {
        index_edge_types(indptr.data(), int64_t(indptr.size()) - 1, types.data(), run_type.data(),
                         run_ptr.data());
      },
      "indptr"_a.noconvert(), "types"_a.noconvert(), "run_type"_a.noconvert(),
      "run_ptr"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
