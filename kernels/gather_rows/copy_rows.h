// copy_rows.h: copies rows to an output, each from where `Rows` finds it, fetched ahead of its use.
//
//   rows.row_bytes()  of a row where it lies
//   rows.seek(i)      begins to fetch row i; called for i = 0, 1, 2, ..., each at most kMostAhead before its take
//   rows.take(i)      its address, good until the next take; nullptr: its place in the output is left alone
//   rows.position(i)  its row of the output
//
// The machine's best instruction set is used (common/isa.h); the bytes are the same with any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/fetch.h"
#include "gather_rows/gather_rows.h"
#include "gather_rows/line.h"

// Inlined into functions that are compiled for one instruction set, these loops are so, too.
#ifdef __GNUC__
#define LG_ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define LG_ALWAYS_INLINE inline
#endif

namespace lg {

// Lines. Enough misses in flight to hide the latency of one, in a small part of a second-level cache.
constexpr int64_t kMostAhead = 256;

LG_ALWAYS_INLINE void prefetch_row(const uint8_t* row, int64_t row_bytes) {
  for (int64_t byte = 0; byte < row_bytes; byte += kLineBytes) fetch_line(row + byte);
  // A row that is no multiple of a line often ends in one line more. Where rows are short, the one
  // miss that is left would cost more than all that were hidden.
  fetch_line(row + row_bytes - 1);
}

struct Output {
  uint8_t* rows;
  int64_t num_rows;
  int64_t row_bytes;
};

// Walks over `count` rows with as many lines under way as kMostAhead. It and Rows go by value: a
// pointer to either could point to the bytes that are written, for all that a compiler knows, and it
// would read each member again for each row.
template <class Rows>
class Walk {
 public:
  LG_ALWAYS_INLINE Walk(Rows rows, int64_t count)
      : rows_(rows),
        count_(count),
        ahead_(std::max<int64_t>(kMostAhead / (rows.row_bytes() / kLineBytes + 1), 1)) {
    for (int64_t i = 0; i < std::min(ahead_, count); ++i) rows_.seek(i);
  }

  LG_ALWAYS_INLINE const uint8_t* take(int64_t i) {
    if (i + ahead_ < count_) rows_.seek(i + ahead_);
    return rows_.take(i);
  }

  LG_ALWAYS_INLINE int64_t position(int64_t i) const { return rows_.position(i); }

 private:
  Rows rows_;
  int64_t count_, ahead_;
};

// kRowBytes: a size so small and common that a copy should be one move; 0 for any other below a line.
template <int64_t kRowBytes, class Rows>
void copy_short(Rows rows, int64_t count, Output out) {
  const int64_t row_bytes = kRowBytes ? kRowBytes : out.row_bytes % kLineBytes;
  Walk<Rows> walk(rows, count);
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* row = walk.take(i);
    if (row != nullptr)
      std::memcpy(out.rows + walk.position(i) * row_bytes, row, size_t(row_bytes));
  }
}

// Rows of at least a line: whole lines, and then the line that ends where the row does.
template <class Line, class Rows>
LG_ALWAYS_INLINE void copy_lines(Rows rows, int64_t count, Output out) {
  Walk<Rows> walk(rows, count);
  const int64_t last = out.row_bytes - kLineBytes;
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* row = walk.take(i);
    if (row == nullptr) continue;
    uint8_t* to = out.rows + walk.position(i) * out.row_bytes;
    for (int64_t byte = 0; byte < last; byte += kLineBytes) Line::copy(to + byte, row + byte);
    Line::copy(to + last, row + last);
  }
}

// The same, past the caches, which takes whole lines: one that two rows share is put together first,
// and one of which a part is left alone is written in the usual way.
template <class Line, class Rows>
LG_ALWAYS_INLINE void stream_lines(Rows rows, int64_t count, Output out) {
  Walk<Rows> walk(rows, count);
  alignas(kLineBytes) uint8_t around[3 * kLineBytes];  // a copy may stick out at either end
  uint8_t* const shared = around + kLineBytes;
  uint8_t* line = out.rows;    // where the next whole line goes to,
  int64_t begin = 0, end = 0;  // of which these bytes are in `shared`
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* row = walk.take(i);
    if (row == nullptr) continue;
    uint8_t* const to = out.rows + walk.position(i) * out.row_bytes;
    if (to != line + end) {
      std::memcpy(line + begin, shared + begin, size_t(end - begin));
      begin = end = int64_t(reinterpret_cast<uintptr_t>(to) % kLineBytes);
      line = to - begin;
    }
    const uint8_t* const stop = row + out.row_bytes;
    if (end > 0) {
      Line::copy(shared + end, row);
      if (begin == 0) {
        Line::stream(line, shared);
      } else {
        std::memcpy(line + begin, shared + begin, size_t(kLineBytes - begin));
        begin = 0;
      }
      row += kLineBytes - end;
      line += kLineBytes;
    }
    for (; stop - row >= kLineBytes; row += kLineBytes, line += kLineBytes) Line::stream(line, row);
    end = stop - row;
    if (end > 0) Line::copy(shared + end - kLineBytes, stop - kLineBytes);
  }
  std::memcpy(line + begin, shared + begin, size_t(end - begin));
  Line::flush();
}

#ifdef LG_X86
template <class Rows>
LG_TARGET_AVX2 void copy_avx2(Rows rows, int64_t count, Output out, bool stream) {
  stream ? stream_lines<Avx2Line>(rows, count, out) : copy_lines<Avx2Line>(rows, count, out);
}

template <class Rows>
LG_TARGET_AVX512 void copy_avx512(Rows rows, int64_t count, Output out, bool stream) {
  stream ? stream_lines<Avx512Line>(rows, count, out) : copy_lines<Avx512Line>(rows, count, out);
}
#endif

template <class Rows>
void copy_rows(Rows rows, int64_t count, Output out) {
  if (out.row_bytes == 4) return copy_short<4>(rows, count, out);
  if (out.row_bytes == 8) return copy_short<8>(rows, count, out);
  if (out.row_bytes < kLineBytes) return copy_short<0>(rows, count, out);
  const bool stream = out.num_rows >= kStreamBytes / out.row_bytes &&
                      reinterpret_cast<uintptr_t>(out.rows) % kLineBytes == 0;
#ifdef LG_X86
  if (used_isa() == Isa::kAvx512) return copy_avx512(rows, count, out, stream);
  if (used_isa() == Isa::kAvx2) return copy_avx2(rows, count, out, stream);
#endif
  stream ? stream_lines<BaselineLine>(rows, count, out)
         : copy_lines<BaselineLine>(rows, count, out);
}

}  // namespace lg
