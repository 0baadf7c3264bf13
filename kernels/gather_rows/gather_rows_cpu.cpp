#include "gather_rows/gather_rows.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"
#include "gather_rows/line.h"

// Inlined into functions that are compiled for one instruction set, these loops are so, too.
#ifdef __GNUC__
#define LG_ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define LG_ALWAYS_INLINE inline
#endif

namespace lg {
namespace {

// Enough misses in flight to hide the latency of one, in a sixth to a quarter of a first-level cache.
constexpr int64_t kLinesAhead = 128;

// Passed by value: a pointer to it could point to the bytes that are written, for all that a
// compiler knows, and it would read each member again for each row.
struct Request {
  const uint8_t* table;
  int64_t row_bytes;
  const int64_t* ids;
  int64_t count;
  uint8_t* out;
  int64_t rows_ahead;
};

LG_ALWAYS_INLINE void prefetch_ahead(const Request& request, int64_t i) {
  if (i + request.rows_ahead >= request.count) return;
  const uint8_t* row = request.table + request.ids[i + request.rows_ahead] * request.row_bytes;
  for (int64_t byte = 0; byte < request.row_bytes; byte += kLineBytes) {
    __builtin_prefetch(row + byte);
  }
  // A row that is no multiple of a line often ends in one line more. Where rows are short, the one
  // miss that is left would cost more than all that were hidden.
  __builtin_prefetch(row + request.row_bytes - 1);
}

// kRowBytes: a size so small and common that a copy should be one move; 0 for any other.
template <int64_t kRowBytes>
void gather_short(Request request) {
  const int64_t row_bytes = kRowBytes ? kRowBytes : request.row_bytes;
  for (int64_t i = 0; i < request.count; ++i) {
    prefetch_ahead(request, i);
    std::memcpy(request.out + i * row_bytes, request.table + request.ids[i] * row_bytes,
                size_t(row_bytes));
  }
}

// Rows of at least a line: whole lines, and then the line that ends where the row does.
template <class Line>
LG_ALWAYS_INLINE void copy_lines(Request request) {
  for (int64_t i = 0; i < request.count; ++i) {
    prefetch_ahead(request, i);
    const uint8_t* row = request.table + request.ids[i] * request.row_bytes;
    uint8_t* out = request.out + i * request.row_bytes;
    const int64_t last = request.row_bytes - kLineBytes;
    for (int64_t byte = 0; byte < last; byte += kLineBytes) Line::copy(out + byte, row + byte);
    Line::copy(out + last, row + last);
  }
}

// The same, past the caches, which takes whole lines: one that two rows share is put together first.
template <class Line>
LG_ALWAYS_INLINE void stream_lines(Request request) {
  alignas(kLineBytes) uint8_t around[3 * kLineBytes];  // a copy may stick out at either end
  uint8_t* const shared = around + kLineBytes;
  int64_t begun = 0;  // bytes in `shared`
  uint8_t* out = request.out;
  for (int64_t i = 0; i < request.count; ++i) {
    prefetch_ahead(request, i);
    const uint8_t* row = request.table + request.ids[i] * request.row_bytes;
    const uint8_t* const end = row + request.row_bytes;
    if (begun > 0) {
      Line::copy(shared + begun, row);
      Line::stream(out, shared);
      row += kLineBytes - begun;
      out += kLineBytes;
    }
    for (; end - row >= kLineBytes; row += kLineBytes, out += kLineBytes) Line::stream(out, row);
    begun = end - row;
    if (begun > 0) Line::copy(shared + begun - kLineBytes, end - kLineBytes);
  }
  std::memcpy(out, shared, size_t(begun));
  Line::flush();
}

void copy_baseline(Request request) { copy_lines<BaselineLine>(request); }
void stream_baseline(Request request) { stream_lines<BaselineLine>(request); }
#ifdef LG_X86
LG_TARGET_AVX2 void copy_avx2(Request request) { copy_lines<Avx2Line>(request); }
LG_TARGET_AVX2 void stream_avx2(Request request) { stream_lines<Avx2Line>(request); }
LG_TARGET_AVX512 void copy_avx512(Request request) { copy_lines<Avx512Line>(request); }
LG_TARGET_AVX512 void stream_avx512(Request request) { stream_lines<Avx512Line>(request); }
#endif

using Gather = void (*)(Request);

Gather choose(const Request& request) {
  if (request.row_bytes == 4) return gather_short<4>;
  if (request.row_bytes == 8) return gather_short<8>;
  if (request.row_bytes < kLineBytes) return gather_short<0>;
  const bool stream = request.count >= kStreamBytes / request.row_bytes &&
                      reinterpret_cast<uintptr_t>(request.out) % kLineBytes == 0;
#ifdef LG_X86
  if (used_isa() == Isa::kAvx512) return stream ? stream_avx512 : copy_avx512;
  if (used_isa() == Isa::kAvx2) return stream ? stream_avx2 : copy_avx2;
#endif
  return stream ? stream_baseline : copy_baseline;
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
  const int64_t row_lines = row_bytes / kLineBytes + 1;
  const Request request{table, row_bytes, ids,
                        count, out,       std::max<int64_t>(kLinesAhead / row_lines, 1)};
  choose(request)(request);
}

}  // namespace lg
