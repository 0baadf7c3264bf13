// bind_runs.h: the lists of one edge type, as Python hands them over.
#pragma once

#include "bind/bind.h"
#include "find_edges/type_runs.h"

namespace lg::bind {

// first_run, stride, and the first and the number of the destinations.
using Place = std::tuple<int64_t, int64_t, int64_t, int64_t>;

template <class Index>
TypeRuns<Index> type_runs(const Offsets& run_ptr, const Array<const Index>& indices,
                          const Place& place) {
  const auto* narrow = std::get_if<Array<const uint32_t>>(&run_ptr);
  const auto* wide = std::get_if<Array<const int64_t>>(&run_ptr);
  const auto [first_run, stride, first, count] = place;
  return {indices.data(),
          narrow ? narrow->data() : nullptr,
          wide ? wide->data() : nullptr,
          first_run,
          stride,
          {first, count}};
}

}  // namespace lg::bind
