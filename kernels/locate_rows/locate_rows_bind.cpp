#include "bind/bind.h"
#include "locate_rows/locate_rows.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "locate_rows",
      [](Array<const int64_t> rows, int64_t num_rows, Maybe<int64_t> new_ids, int64_t first,
         Array<const int64_t> starts, Array<const int64_t> begins, Array<int64_t> counts,
         Array<int64_t> own_rows, Array<int64_t> positions) {
        const PartPlaces places{data(new_ids), first, starts.data(), begins.data(),
                                int64_t(begins.size())};
        locate_rows(rows.data(), int64_t(rows.size()), num_rows, places, counts.data(),
                    own_rows.data(), positions.data());
      },
      "rows"_a.noconvert(), "num_rows"_a, "new_ids"_a.noconvert().none(), "first"_a,
      "starts"_a.noconvert(), "begins"_a.noconvert(), "counts"_a.noconvert(),
      "own_rows"_a.noconvert(), "positions"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
