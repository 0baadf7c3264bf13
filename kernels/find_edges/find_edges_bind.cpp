#include <nanobind/stl/tuple.h>

#include "find_edges/bind_runs.h"
#include "find_edges/find_edges.h"

namespace lg::bind {

template <class Index, class Value>
void define_find_edges(nb::module_& m) {
  m.def(
      "find_edges",
      [](Offsets run_ptr, Array<const Index> indices, Place place, Array<const Value> values,
         Array<const int64_t> destinations, Array<const int64_t> wanted, Maybe<int64_t> begins,
         Array<int64_t> positions) {
        find_edges(FindEdgesRequest<Index, Value>{type_runs<Index>(run_ptr, indices, place),
                                                  values.data(), destinations.data(), wanted.data(),
                                                  data(begins), int64_t(destinations.size())},
                   positions.data());
      },
      "run_ptr"_a.noconvert(), "indices"_a.noconvert(), "place"_a, "values"_a.noconvert(),
      "destinations"_a.noconvert(), "wanted"_a.noconvert(), "begins"_a.noconvert().none(),
      "positions"_a.noconvert(), NoGil());
}

LG_BIND_INDEX(Index, m) {
  define_find_edges<Index, int32_t>(m);
  define_find_edges<Index, int64_t>(m);
  m.def(
      "mark_edges",
      [](Offsets run_ptr, Array<const Index> indices, Place place, Maybe<uint32_t> edge_time,
         Array<const int64_t> sources, Maybe<uint32_t> until, Array<const int64_t> destinations,
         Array<uint8_t> known) {
        mark_edges(
            MarkEdgesRequest<Index>{type_runs<Index>(run_ptr, indices, place), data(edge_time),
                                    sources.data(), data(until), int64_t(sources.size()),
                                    destinations.data(), int64_t(destinations.size())},
            known.data());
      },
      "run_ptr"_a.noconvert(), "indices"_a.noconvert(), "place"_a, "edge_time"_a.noconvert().none(),
      "sources"_a.noconvert(), "until"_a.noconvert().none(), "destinations"_a.noconvert(),
      "known"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
