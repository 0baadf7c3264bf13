#include "gather_rows/gather_rows.h"

#include "gather_rows/check_ids.h"
#include "gather_rows/copy_rows.h"

namespace lg {
namespace {

struct TableRows {
  const uint8_t* table;
  int64_t row_bytes;
  const int64_t* ids;

  LG_ALWAYS_INLINE void seek(int64_t i) const { prefetch_row(take(i), row_bytes); }
  LG_ALWAYS_INLINE const uint8_t* take(int64_t i) const { return table + ids[i] * row_bytes; }
  LG_ALWAYS_INLINE int64_t position(int64_t i) const { return i; }
};

struct PlacedRows : TableRows {
  const int64_t* positions;

  LG_ALWAYS_INLINE int64_t position(int64_t i) const { return positions[i]; }
};

}  // namespace

void gather_rows(const uint8_t* table, int64_t num_rows, int64_t row_bytes, const int64_t* ids,
                 const int64_t* positions, int64_t count, uint8_t* out, int64_t num_out) {
  check_ids(ids, count, num_rows);
  check_positions(positions, count, num_out);
  if (row_bytes == 0) return;
  const TableRows rows{table, row_bytes, ids};
  const Output output{out, num_out, row_bytes};
  if (positions == nullptr) return copy_rows(rows, count, output);
  copy_rows(PlacedRows{rows, positions}, count, output);
}

}  // namespace lg
