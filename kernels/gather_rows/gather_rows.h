// gather_rows.h: out[i] = table[ids[i]], or out[positions[i]] = table[ids[i]], rows of any size.
//
//   in   table      num_rows rows of row_bytes, one after the other, starting anywhere
//   in   ids[count] every one is checked before any row is read; SeedError names the first bad one
//   in   positions  [count], or nullptr for 0, 1, 2, ...; checked likewise
//   out  out        num_out rows of row_bytes, starting anywhere; must not overlap the table. Rows
//                   that are no one's position are left alone.
//
// The machine's best instruction set is used (common/isa.h); the bytes are the same with any.
//
// Rows are read in the order of ids. To read them in the order of the table does not pay, once many
// are prefetched: of 300 k among 2.4 M rows of 512 bytes, it saves 0.2 of 9.3 ms with the table on
// 2 MB pages and 2.9 of 13 ms on 4 KB pages, but sorting takes 3.8 ms, and rows must go back yet.
#pragma once

#include <cstdint>

namespace lg {

// Output of this size is written past the caches, where `out` starts a line. That spares reading the
// lines that it replaces, a third of all traffic; but whoever reads it next finds less of it in the
// third-level cache. With one of 32 MB, a reader that comes at once breaks even at 24 MB; batches
// wait for a while until they are read.
constexpr int64_t kStreamBytes = 16 << 20;

void gather_rows(const uint8_t* table, int64_t num_rows, int64_t row_bytes, const int64_t* ids,
                 const int64_t* positions, int64_t count, uint8_t* out, int64_t num_out);

}  // namespace lg
