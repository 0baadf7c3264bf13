// table_rows.h: rows of one table, as copy_rows.h takes them.
#pragma once

#include "gather_rows/copy_rows.h"

namespace lg {

struct TableRows {
  const uint8_t* table;
  int64_t num_bytes;  // of a row
  const int64_t* ids;
  const int64_t* positions;  // nullptr: 0, 1, 2, ...

  LG_ALWAYS_INLINE int64_t row_bytes() const { return num_bytes; }
  LG_ALWAYS_INLINE void seek(int64_t i) const { prefetch_row(take(i), num_bytes); }
  LG_ALWAYS_INLINE const uint8_t* take(int64_t i) const { return table + ids[i] * num_bytes; }
  LG_ALWAYS_INLINE int64_t position(int64_t i) const { return positions ? positions[i] : i; }
};

}  // namespace lg
