// gather_rows.h: out[i] = table[ids[i]], rows of any size.
//
//   in   table      num_rows rows of row_bytes, one after the other
//   in   ids[count] every one is checked before any row is read; SeedError names the first bad one
//   out  out        count rows of row_bytes; must not overlap the table
#pragma once

#include <cstdint>

namespace lg {

void gather_rows(const uint8_t* table, int64_t num_rows, int64_t row_bytes, const int64_t* ids,
                 int64_t count, uint8_t* out);

}  // namespace lg
