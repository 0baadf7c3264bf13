#include "bind/bind.h"
#include "gather_rows/gather_rows.h"

namespace lg::bind {

LG_BIND(m) {
  m.attr("STREAM_BYTES") = kStreamBytes;
  m.def(
      "gather_rows",
      [](Array<const uint8_t> table, int64_t num_rows, Array<const int64_t> ids, Bytes out,
         Maybe<int64_t> positions, int64_t num_out) {
        const int64_t row_bytes = num_rows > 0 ? int64_t(table.size()) / num_rows : 0;
        const int64_t count = int64_t(ids.size());
        gather_rows(table.data(), num_rows, row_bytes, ids.data(), data(positions), count,
                    out.data(), positions ? num_out : count);
      },
      "table"_a.noconvert(), "num_rows"_a, "ids"_a.noconvert(), "out"_a.noconvert(),
      "positions"_a.noconvert() = nb::none(), "num_out"_a = 0, NoGil());
}

}  // namespace lg::bind
