#include "gather_mapped/gather_mapped.h"

#include "gather_mapped/bus_errors.h"
#include "gather_rows/gather_rows.h"

namespace lg {

bool gather_mapped(const uint8_t* table, int64_t num_rows, int64_t row_bytes, const int64_t* ids,
                   const int64_t* positions, int64_t count, uint8_t* out, int64_t num_out) {
  // Pages are read after all checks, by loops that own nothing.
  return guarded(table, table + num_rows * row_bytes, [&] {
    gather_rows(table, num_rows, row_bytes, ids, positions, count, out, num_out);
  });
}

}  // namespace lg
