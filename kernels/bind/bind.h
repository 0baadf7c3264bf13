// bind.h: what the bindings of all kernels have in common.
//
// Arrays come as views and are never converted: ops/, the only caller, has checked dtypes and
// layout. Kernels run without the GIL, so a caller must not change an array meanwhile.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "common/alias.h"
#include "common/batch.h"
#include "importance_tree/whole_weights.h"

namespace lg::bind {

namespace nb = nanobind;
using namespace nb::literals;

template <class T>
using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = Array<uint8_t>;
using NoGil = nb::call_guard<nb::gil_scoped_release>;

template <class T>
using Maybe = std::optional<Array<const T>>;

template <class T>
T* data(const std::optional<Array<T>>& array) {
  return array ? array->data() : nullptr;
}

using Offsets = std::variant<Array<const uint32_t>, Array<const int64_t>>;  // where runs begin
using Names = Maybe<int64_t>;  // of the graph's nodes, by which they draw

template <class Index>
Csc<Index> csc(const Array<const int64_t>& indptr, const Array<const Index>& indices,
               const Names& names = std::nullopt) {
  return {indptr.data(), indices.data(), int64_t(indptr.size()) - 1, data(names)};
}

// Of a graph's edges, float or double, or none.
using Weights = std::optional<nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>>;

inline EdgeWeights edge_weights(const Weights& weights) {
  if (!weights) return {};
  if (weights->dtype() == nb::dtype<float>()) {
    return {static_cast<const float*>(weights->data()), nullptr};
  }
  return {nullptr, static_cast<const double*>(weights->data())};
}

using Table = Maybe<AliasEntry>;  // of a graph's weights, or none

// What defines functions of the module: registered by being compiled, called when it is imported.
using Definition = void (*)(nb::module_&);
std::vector<Definition>& definitions();

struct Registration {
  explicit Registration(Definition definition) { definitions().push_back(definition); }
};

}  // namespace lg::bind

// Once in each KERNEL_bind.cpp, inside the namespace lg::bind:
//
//   LG_BIND(m) { m.def("kernel", ...); }
//   LG_BIND_INDEX(Index, m) { m.def("kernel", ...); }    // twice: for int32_t and int64_t
#define LG_BIND(m)                              \
  static void define(nb::module_& m);           \
  static const Registration registered(define); \
  static void define(nb::module_& m)

#define LG_BIND_INDEX(Index, m)           \
  template <class Index>                  \
  static void define_for(nb::module_& m); \
  LG_BIND(m) {                            \
    define_for<int32_t>(m);               \
    define_for<int64_t>(m);               \
  }                                       \
  template <class Index>                  \
  static void define_for(nb::module_& m)
