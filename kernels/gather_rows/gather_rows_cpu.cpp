#include "gather_rows/gather_rows.h"

#include <cstring>

#include "common/error.h"

namespace lg {
namespace {

constexpr int64_t kRowsAhead = 8;  // enough misses in flight to hide the latency of one
constexpr int64_t kLineBytes = 64;

// kRowBytes: a size so small and common that a copy should be one move; 0 for any other.
template <int64_t kRowBytes>
void gather(const uint8_t* table, int64_t any_row_bytes, const int64_t* ids, int64_t count,
            uint8_t* out) {
  const int64_t row_bytes = kRowBytes ? kRowBytes : any_row_bytes;
  for (int64_t i = 0; i < count; ++i) {
    if (i + kRowsAhead < count) {
      const uint8_t* row = table + ids[i + kRowsAhead] * row_bytes;
      for (int64_t byte = 0; byte < row_bytes; byte += kLineBytes) __builtin_prefetch(row + byte);
    }
    std::memcpy(out + i * row_bytes, table + ids[i] * row_bytes, size_t(row_bytes));
  }
}

}  // namespace

void gather_rows(const uint8_t* table, int64_t num_rows, int64_t row_bytes, const int64_t* ids,
                 int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (!in_range(ids[i], num_rows)) {
      fail<SeedError>("ids[", i, "] is ", ids[i], ", but the table has ", num_rows,
                      " rows: ids must lie in [0, ", num_rows, ").");
    }
  }
  if (row_bytes == 0) return;
  const auto gather_size = row_bytes == 4 ? gather<4> : row_bytes == 8 ? gather<8> : gather<0>;
  gather_size(table, row_bytes, ids, count, out);
}

}  // namespace lg
