#include "bind/bind.h"
#include "graph/index_edge_types.h"

namespace lg::bind {

LG_BIND(m) {
  m.attr("MAX_EDGE_TYPES") = kMaxEdgeTypes;
  m.def(
      "count_edge_type_runs",
      [](Array<const int64_t> indptr, Array<const int32_t> types, Array<int64_t> run_ptr) {
        return count_edge_type_runs(indptr.data(), int64_t(indptr.size()) - 1, types.data(),
                                    run_ptr.data());
      },
      "indptr"_a.noconvert(), "types"_a.noconvert(), "run_ptr"_a.noconvert(), NoGil());
  m.def(
      "index_edge_types",
      [](Array<const int64_t> indptr, Array<const int32_t> types, Array<const int64_t> run_ptr,
         Array<int32_t> run_type, Array<uint32_t> run_end, std::optional<Array<uint32_t>> order) {
        index_edge_types(indptr.data(), int64_t(indptr.size()) - 1, types.data(), run_ptr.data(),
                         run_type.data(), run_end.data(), data(order));
      },
      "indptr"_a.noconvert(), "types"_a.noconvert(), "run_ptr"_a.noconvert(),
      "run_type"_a.noconvert(), "run_end"_a.noconvert(), "order"_a.noconvert().none(), NoGil());
}

}  // namespace lg::bind
