#include "bind/bind.h"
#include "graph/build_runs.h"

namespace lg::bind {
namespace {

using Codes = std::optional<Array<const uint32_t>>;
using Floats = std::optional<nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>>;

template <class Id>
EdgeList<Id> edge_list(const char* name, const Array<const Id>& src, const Array<const Id>& dst,
                       int64_t num_src, int64_t num_dst, int64_t first_run, int64_t step) {
  return {name, src.data(), dst.data(), int64_t(src.size()), num_src, num_dst, first_run,
          step, nullptr,    nullptr};
}

template <class Id>
void bind_count(nb::module_& m) {
  m.def(
      "count_runs",
      [](const char* name, Array<const Id> src, Array<const Id> dst, int64_t num_src,
         int64_t num_dst, int64_t first_run, int64_t step, Array<int64_t> num_in_run) {
        count_runs(edge_list(name, src, dst, num_src, num_dst, first_run, step), num_in_run.data());
      },
      "name"_a, "src"_a.noconvert(), "dst"_a.noconvert(), "num_src"_a, "num_dst"_a, "first_run"_a,
      "step"_a, "num_in_run"_a.noconvert(), NoGil());
}

template <class Id, class Index>
void bind_fill(nb::module_& m) {
  m.def(
      "fill_runs",
      [](const char* name, Array<const Id> src, Array<const Id> dst, int64_t num_src,
         int64_t num_dst, int64_t first_run, int64_t step, Codes code, Weights weight,
         int64_t first_src, Array<const int64_t> begin, Array<Index> indices,
         std::optional<Array<uint32_t>> edge_time, std::optional<Array<uint32_t>> order,
         Floats edge_weight) {
        EdgeList<Id> edges = edge_list(name, src, dst, num_src, num_dst, first_run, step);
        edges.code = code ? code->data() : nullptr;
        edges.weight = weight ? weight->data() : nullptr;
        fill_runs(edges, first_src, begin.data(),
                  RunsOut<Index>{indices.data(), edge_time ? edge_time->data() : nullptr,
                                 order ? order->data() : nullptr,
                                 edge_weight ? edge_weight->data() : nullptr,
                                 edge_weight ? int64_t(edge_weight->itemsize()) : 0});
      },
      "name"_a, "src"_a.noconvert(), "dst"_a.noconvert(), "num_src"_a, "num_dst"_a, "first_run"_a,
      "step"_a, "code"_a.noconvert().none(), "weight"_a.noconvert().none(), "first_src"_a,
      "begin"_a.noconvert(), "indices"_a.noconvert(), "edge_time"_a.noconvert().none(),
      "order"_a.noconvert().none(), "edge_weight"_a.noconvert().none(), NoGil());
}

}  // namespace

LG_BIND(m) {
  bind_count<int32_t>(m);
  bind_count<int64_t>(m);
  bind_fill<int32_t, int32_t>(m);
  bind_fill<int32_t, int64_t>(m);
  bind_fill<int64_t, int32_t>(m);
  bind_fill<int64_t, int64_t>(m);
}

}  // namespace lg::bind
