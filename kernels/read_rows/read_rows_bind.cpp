#include <nanobind/stl/string.h>

#include <string>

#include "bind/bind.h"
#include "read_rows/read_rows.h"

namespace lg::bind {

LG_BIND(m) {
  m.attr("MOST_IN_FLIGHT") = RowReader::kMostInFlight;
  nb::class_<RowReader>(m, "RowReader")
      .def(nb::init<int64_t, int64_t, int, bool>(), "row_bytes"_a, "unit"_a, "in_flight"_a,
           "use_ring"_a)
      .def_prop_ro("has_ring", &RowReader::has_ring)
      .def(
          "read",
          [](RowReader& reader, int fd, const std::string& name, int64_t offset, int64_t num_rows,
             int64_t row_bytes, int64_t unit, Array<const int64_t> ids, Maybe<int64_t> positions,
             Bytes out, int64_t num_out) {
            const Tally tally = [&] {
              nb::gil_scoped_release no_gil;
              return reader.read({fd, name.c_str(), offset, num_rows, row_bytes, unit}, ids.data(),
                                 data(positions), int64_t(ids.size()), out.data(), num_out);
            }();
            return nb::make_tuple(tally.reads, tally.bytes);
          },
          "fd"_a, "name"_a, "offset"_a, "num_rows"_a, "row_bytes"_a, "unit"_a, "ids"_a.noconvert(),
          "positions"_a.noconvert().none(), "out"_a.noconvert(), "num_out"_a);
}

}  // namespace lg::bind
