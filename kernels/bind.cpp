// bind.cpp: the extension module lightning_gnnload.ops._kernels.
//
// Arrays come as views and are never converted: dispatch.py, the only caller, has checked dtypes
// and layout. Kernels run without the GIL, so a caller must not change an array meanwhile.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "check_csc/check_csc.h"
#include "common/draw.h"
#include "common/error.h"
#include "coo_to_csc/coo_to_csc.h"
#include "gather_rows/gather_rows.h"
#include "random_keys/random_keys.h"
#include "sample_neighbors/sample_neighbors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T>
using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = Array<uint8_t>;
using NoGil = nb::call_guard<nb::gil_scoped_release>;

template <class Index>
nb::tuple sample_neighbors(lg::Workspace& workspace, Array<const int64_t> indptr,
                           Array<const Index> indices, Array<const int64_t> seeds,
                           std::vector<int64_t> fanouts, uint64_t seed, uint32_t epoch,
                           uint32_t step, Bytes arena, bool replace, bool expand_new, bool edge_ids,
                           int64_t max_local) {
  lg::SampleRequest<Index> request;
  request.indptr = indptr.data();
  request.indices = indices.data();
  request.num_nodes = int64_t(indptr.size()) - 1;
  request.seeds = seeds.data();
  request.num_seeds = int64_t(seeds.size());
  request.fanouts = std::move(fanouts);
  request.seed = seed;
  request.epoch = epoch;
  request.step = step;
  request.replace = replace;
  request.expand = expand_new ? lg::Expand::kNew : lg::Expand::kAll;
  request.edge_ids = edge_ids;
  request.max_local = max_local;
  request.arena = arena.data();
  request.arena_bytes = int64_t(arena.size());
  const lg::SampleLayout layout = [&] {
    nb::gil_scoped_release no_gil;
    return lg::sample_neighbors(workspace, request);
  }();
  nb::list hops;
  for (const lg::HopLayout& hop : layout.hops) {
    hops.append(nb::make_tuple(hop.num_dst, hop.num_src, hop.num_edges, hop.indptr_offset,
                               hop.indices_offset, hop.edge_ids_offset));
  }
  return nb::make_tuple(layout.num_nodes, hops, layout.free_begin, layout.free_end);
}

template <class Index>
void bind_index(nb::module_& m) {
  m.def("sample_neighbors", &sample_neighbors<Index>, "workspace"_a, "indptr"_a.noconvert(),
        "indices"_a.noconvert(), "seeds"_a.noconvert(), "fanouts"_a, "seed"_a, "epoch"_a, "step"_a,
        "arena"_a.noconvert(), "replace"_a, "expand_new"_a, "edge_ids"_a,
        "max_local"_a = lg::kMaxLocal);
  m.def(
      "check_csc",
      [](Array<const int64_t> indptr, Array<const Index> indices) {
        lg::check_csc(indptr.data(), int64_t(indptr.size()) - 1, indices.data(),
                      int64_t(indices.size()));
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), NoGil());
}

template <class Src, class Dst>
void bind_coo_to_csc(nb::module_& m) {
  m.def(
      "coo_to_csc",
      [](Array<const Src> src, Array<const Dst> dst, Array<int64_t> indptr, Array<Src> indices,
         std::optional<Array<int64_t>> order) {
        lg::coo_to_csc(src.data(), dst.data(), int64_t(src.size()), int64_t(indptr.size()) - 1,
                       indptr.data(), indices.data(), order ? order->data() : nullptr);
      },
      "src"_a.noconvert(), "dst"_a.noconvert(), "indptr"_a.noconvert(), "indices"_a.noconvert(),
      "order"_a.noconvert().none(), NoGil());
}

// Raises `value` as the Python class `name` of `module`.
void raise(const char* module, const char* name, nb::object value) {
  nb::object type = nb::module_::import_(module).attr(name);
  PyErr_SetObject(type.ptr(), value.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  constexpr const char* kErrors = "lightning_gnnload.errors";
  try {
    std::rethrow_exception(pointer);
  } catch (const lg::SeedError& error) {
    raise(kErrors, "SeedError", nb::str(error.what()));
  } catch (const lg::GraphFormatError& error) {
    raise(kErrors, "GraphFormatError", nb::str(error.what()));
  } catch (const lg::SamplerConfigError& error) {
    raise(kErrors, "SamplerConfigError", nb::str(error.what()));
  } catch (const lg::ArenaTooSmall& signal) {
    raise("lightning_gnnload.ops.dispatch", "ArenaTooSmall", nb::int_(signal.needed_bytes));
  }
}

}  // namespace

NB_MODULE(_kernels, m) {
  nb::set_leak_warnings(false);  // a Workspace may well live until the interpreter ends
  nb::register_exception_translator(translate);
  nb::class_<lg::Workspace>(m, "Workspace")
      .def(nb::init<int64_t, bool>(), "num_nodes"_a, "use_hash"_a);
  m.attr("MAX_FANOUT") = lg::kMaxDraws;
  m.attr("MAX_HOPS") = lg::kMaxHops;
  bind_index<int32_t>(m);
  bind_index<int64_t>(m);
  bind_coo_to_csc<int32_t, int32_t>(m);
  bind_coo_to_csc<int32_t, int64_t>(m);
  bind_coo_to_csc<int64_t, int32_t>(m);
  bind_coo_to_csc<int64_t, int64_t>(m);
  m.def(
      "gather_rows",
      [](Array<const uint8_t> table, int64_t num_rows, Array<const int64_t> ids, Bytes out) {
        const int64_t row_bytes = num_rows > 0 ? int64_t(table.size()) / num_rows : 0;
        lg::gather_rows(table.data(), num_rows, row_bytes, ids.data(), int64_t(ids.size()),
                        out.data());
      },
      "table"_a.noconvert(), "num_rows"_a, "ids"_a.noconvert(), "out"_a.noconvert(), NoGil());
  m.def(
      "random_keys",
      [](uint64_t seed, uint32_t epoch, Array<const int64_t> ids, Array<uint64_t> keys) {
        lg::random_keys(seed, epoch, ids.data(), int64_t(ids.size()), keys.data());
      },
      "seed"_a, "epoch"_a, "ids"_a.noconvert(), "keys"_a.noconvert(), NoGil());
}
