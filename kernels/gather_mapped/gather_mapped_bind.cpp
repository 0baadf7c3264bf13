#include <nanobind/stl/string.h>

#include "bind/bind.h"
#include "gather_mapped/bus_errors.h"
#include "gather_mapped/gather_mapped.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "gather_mapped",
      [](Array<const uint8_t> table, int64_t num_rows, Array<const int64_t> ids,
         Maybe<int64_t> positions, Bytes out, int64_t num_out) {
        const int64_t row_bytes = num_rows > 0 ? int64_t(table.size()) / num_rows : 0;
        return gather_mapped(table.data(), num_rows, row_bytes, ids.data(), data(positions),
                             int64_t(ids.size()), out.data(), num_out);
      },
      "table"_a.noconvert(), "num_rows"_a, "ids"_a.noconvert(), "positions"_a.noconvert().none(),
      "out"_a.noconvert(), "num_out"_a, NoGil());
  m.def(
      "watch_map",
      [](Array<const uint8_t> bytes, const std::string& name) {
        return watch_map(bytes.data(), bytes.data() + bytes.size(), name);
      },
      "bytes"_a.noconvert(), "name"_a);
  m.def("unwatch_map", &unwatch_map, "number"_a);
}

}  // namespace lg::bind
