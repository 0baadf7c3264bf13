#include "bind/bind.h"
#include "graph/build_runs.h"

namespace lg::bind {
namespace {

using Codes = std::optional<Array<const uint32_t>>;
using Times = std::optional<Array<uint32_t>>;
using Given = std::vector<nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>>;
using Sorted = std::vector<nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>>;

std::vector<Column> columns(const Given* given, const Sorted& sorted) {
  std::vector<Column> all;
  for (size_t c = 0; c < sorted.size(); ++c) {
    all.push_back({given ? (*given)[c].data() : nullptr, sorted[c].data(),
                   int64_t(sorted[c].itemsize())});
  }
  return all;
}

template <class Id>
void bind_count(nb::module_& m) {
  m.def(
      "count_cells",
      [](const char* name, Array<const Id> src, Array<const Id> dst, int64_t first_run,
         int64_t step, int64_t num_src, int64_t num_dst, int shift, Array<int64_t> num_in_cell) {
        count_cells(
            name,
            EdgeList<Id>{src.data(), dst.data(), int64_t(src.size()), num_src, num_dst, first_run, step},
            shift, num_in_cell.data());
      },
      "name"_a, "src"_a.noconvert(), "dst"_a.noconvert(), "first_run"_a, "step"_a, "num_src"_a,
      "num_dst"_a, "shift"_a, "num_in_cell"_a.noconvert(), NoGil());
}

template <class Id, class Index>
void bind_divide(nb::module_& m) {
  m.def(
      "divide_edges",
      [](Array<const Id> src, Array<const Id> dst, int64_t first_run, int64_t step,
         int64_t first_src, Codes code, const Given& given, int shift,
         Array<const uint16_t> part_of_cell, Array<int64_t> next, Array<uint32_t> run,
         Array<Index> indices, Times edge_time, const Sorted& sorted) {
        divide_edges(EdgeList<Id>{src.data(), dst.data(), int64_t(src.size()), 0, 0, first_run, step},
                     first_src, code ? code->data() : nullptr,
                     Parts{shift, part_of_cell.data(), next.data(), int64_t(next.size())},
                     run.data(), indices.data(), edge_time ? edge_time->data() : nullptr,
                     columns(&given, sorted));
      },
      "src"_a.noconvert(), "dst"_a.noconvert(), "first_run"_a, "step"_a, "first_src"_a,
      "code"_a.noconvert().none(), "given"_a, "shift"_a, "part_of_cell"_a.noconvert(),
      "next"_a.noconvert(), "run"_a.noconvert(), "indices"_a.noconvert(),
      "edge_time"_a.noconvert().none(), "sorted"_a, NoGil());
}

template <class Ptr>
void bind_sort(nb::module_& m) {
  m.def(
      "sort_parts",
      [](Array<const int64_t> first_run, Array<const int64_t> begin, Array<const uint32_t> run,
         Times edge_time, const Sorted& sorted, Array<Ptr> run_ptr) {
        sort_parts(first_run.data(), begin.data(), int64_t(begin.size()) - 1, run.data(),
                   edge_time ? edge_time->data() : nullptr, columns(nullptr, sorted),
                   run_ptr.data());
      },
      "first_run"_a.noconvert(), "begin"_a.noconvert(), "run"_a.noconvert(),
      "edge_time"_a.noconvert().none(), "sorted"_a, "run_ptr"_a.noconvert(), NoGil());
}

}  // namespace

LG_BIND(m) {
  bind_count<int32_t>(m);
  bind_count<int64_t>(m);
  bind_divide<int32_t, int32_t>(m);
  bind_divide<int32_t, int64_t>(m);
  bind_divide<int64_t, int32_t>(m);
  bind_divide<int64_t, int64_t>(m);
  bind_sort<uint32_t>(m);
  bind_sort<int64_t>(m);
}

}  // namespace lg::bind
