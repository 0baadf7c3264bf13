#include "gather_rows/gather_rows.h"

#include "common/signals.h"
#include "gather_rows/check_ids.h"
#include "gather_rows/table_rows.h"

namespace lg {

void gather_rows(const uint8_t* table, int64_t num_rows, int64_t row_bytes, const int64_t* ids,
                 const int64_t* positions, int64_t count, uint8_t* out, int64_t num_out) {
  check_ids(ids, count, num_rows);
  check_positions(positions, count, num_out);
  if (row_bytes == 0) return;
  SignalWatch().in_pieces(0, count, [&](int64_t begin, int64_t end) {
    const int64_t* to = positions ? positions + begin : nullptr;
    uint8_t* const first = positions ? out : out + begin * row_bytes;
    copy_rows(TableRows{table, row_bytes, ids + begin, to}, end - begin,
              {first, num_out, row_bytes});
  });
}

}  // namespace lg
