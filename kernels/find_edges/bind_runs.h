// bind_runs.h: the lists of one edge type, as Python hands them over.
#pragma once

#include "bind/bind.h"
#include "find_edges/type_runs.h"

namespace lg::bind {

using RunPtr = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;  // uint32 or int64
using Codes = std::optional<Array<const uint32_t>>;

// first_run, stride, and the first and the number of the destinations.
using Place = std::tuple<int64_t, int64_t, int64_t, int64_t>;

template <class Index>
TypeRuns<Index> type_runs(const RunPtr& run_ptr, const Array<const Index>& indices,
                          const Place& place) {
  const bool narrow = run_ptr.dtype() == nb::dtype<uint32_t>();
  const auto [first_run, stride, first, count] = place;
  return {indices.data(),
          narrow ? static_cast<const uint32_t*>(run_ptr.data()) : nullptr,
          narrow ? nullptr : static_cast<const int64_t*>(run_ptr.data()),
          first_run,
          stride,
          {first, count}};
}

template <class T>
const T* data(const std::optional<Array<const T>>& array) {
  return array ? array->data() : nullptr;
}

}  // namespace lg::bind
