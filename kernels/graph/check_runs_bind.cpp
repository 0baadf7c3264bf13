#include "bind/bind.h"
#include "graph/check_runs.h"

namespace lg::bind {
namespace {

template <class Ptr, class Index>
void bind_arrays(nb::module_& m) {
  m.def(
      "check_runs",
      [](Array<const int64_t> indptr, Array<const Index> indices, Array<const Ptr> run_ptr,
         Maybe<uint32_t> edge_time, int64_t first_node, int64_t num_nodes, int64_t first_run,
         Array<const int64_t> least, Array<const int64_t> bound) {
        check_runs(
            csc(indptr, indices),
            {first_node, num_nodes, first_run, int64_t(least.size()), least.data(), bound.data()},
            run_ptr.data(), data(edge_time));
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "run_ptr"_a.noconvert(),
      "edge_time"_a.noconvert().none(), "first_node"_a, "num_nodes"_a, "first_run"_a,
      "least"_a.noconvert(), "bound"_a.noconvert(), NoGil());
}

}  // namespace

LG_BIND(m) {
  bind_arrays<uint32_t, int32_t>(m);
  bind_arrays<uint32_t, int64_t>(m);
  bind_arrays<int64_t, int32_t>(m);
  bind_arrays<int64_t, int64_t>(m);
}

}  // namespace lg::bind
