#include "aggregate/max_neighbors.h"

#include <algorithm>

#include "common/error.h"
#include "common/fetch.h"
#include "common/isa.h"
#include "common/slices.h"
#include "gather_rows/copy_rows.h"

namespace lg {
namespace {

constexpr int64_t kTile =
    128;  // columns at a time: what is largest so far stays in the first-level cache
constexpr int64_t kAhead = 6;     // edges: their lines, eight of float32, are asked for meanwhile
constexpr int64_t kColumns = 16;  // of float32, a line

// Back to what it was, a NaN to the same bits.
LG_ALWAYS_INLINE void unwiden(float value, float* out) { *out = value; }
LG_ALWAYS_INLINE void unwiden(double value, double* out) { *out = value; }
LG_ALWAYS_INLINE void unwiden(float value, BFloat16* out) {
  out->bits = uint16_t(bits_of(value) >> 16);
}

template <class T>
struct Rows {
  const int32_t* indptr;
  const int32_t* indices;
  const T* x;
  T* out;
  int32_t* from;
  int64_t width, num_edges;
};

// Asks for what comes kAhead edges after edge e: of the same columns, then of this row's next ones, then of the rows
// that follow.
template <class T>
LG_ALWAYS_INLINE void fetch_ahead(const Rows<T>& rows, int64_t e, int64_t begin, int64_t end,
                                  int64_t column) {
  int64_t ahead = e + kAhead;
  if (ahead >= end) {
    column += kTile;
    if (column < rows.width) {
      ahead = std::min(ahead - end + begin, end - 1);
    } else {
      column = 0;
    }
  }
  if (ahead >= rows.num_edges) return;
  const T* const row = rows.x + rows.indices[ahead] * rows.width;
  const int64_t stop = std::min(column + kTile, rows.width);
  for (; column < stop; column += kLineBytes / int64_t(sizeof(T))) fetch_line(row + column);
}

template <class T>
LG_ALWAYS_INLINE void max_tile(const Rows<T>& rows, int64_t row, int64_t column, int64_t size) {
  Wide<T> best[kTile];
  int32_t from[kTile];
  const int64_t begin = rows.indptr[row], end = rows.indptr[row + 1];
  for (int64_t e = begin; e < end; ++e) {
    const int32_t source = rows.indices[e];
    const T* const at = rows.x + source * rows.width + column;
    fetch_ahead(rows, e, begin, end, column);
    if (e == begin) {
      for (int64_t c = 0; c < size; ++c) best[c] = widen(at[c]);
      for (int64_t c = 0; c < size; ++c) from[c] = source;
      continue;
    }
    for (int64_t c = 0; c < size; ++c) {
      const Wide<T> value = widen(at[c]);
      const bool is_larger = (value > best[c]) | ((value != value) & (best[c] == best[c]));
      best[c] = is_larger ? value : best[c];
      from[c] = is_larger ? source : from[c];
    }
  }
  T* const out = rows.out + row * rows.width + column;
  int32_t* const whose = rows.from + row * rows.width + column;
  for (int64_t c = 0; c < size; ++c) unwiden(begin < end ? best[c] : Wide<T>(0), out + c);
  for (int64_t c = 0; c < size; ++c) whose[c] = begin < end ? from[c] : -1;
}

template <class T>
LG_ALWAYS_INLINE void max_rows(const Rows<T>& rows, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    int64_t column = 0;
    for (; column + kTile <= rows.width; column += kTile) max_tile(rows, row, column, kTile);
    if (column < rows.width) max_tile(rows, row, column, rows.width - column);
  }
}

#ifdef LG_X86
template <class T>
LG_TARGET_AVX2 void max_rows_avx2(const Rows<T>& rows, int64_t begin, int64_t end) {
  max_rows(rows, begin, end);
}

template <class T>
LG_TARGET_AVX512 void max_rows_avx512(const Rows<T>& rows, int64_t begin, int64_t end) {
  max_rows(rows, begin, end);
}
#endif

template <class T>
void max_all(const AggregateRequest& request, const void* x, void* out, int32_t* from) {
  const Rows<T> rows{
      request.indptr, request.indices, static_cast<const T*>(x), static_cast<T*>(out),
      from,           request.width,   request.num_edges};
  const auto work = [&](int64_t begin, int64_t end) {
#ifdef LG_X86
    if (used_isa() == Isa::kAvx512) return max_rows_avx512(rows, begin, end);
    if (used_isa() == Isa::kAvx2) return max_rows_avx2(rows, begin, end);
#endif
    max_rows(rows, begin, end);
  };
  in_threads(request.num_dst, request.num_edges * request.width, kThreadNumbers,
             request.num_threads, work);
}

template <class T>
void add_all(const int32_t* from, const void* grad, void* into, int64_t num_dst, int64_t width,
             int num_threads) {
  const T* const grads = static_cast<const T*>(grad);
  Wide<T>* const sums = static_cast<Wide<T>*>(into);
  // Whole lines, so that no two threads write to one.
  const int64_t num_lines = (width + kColumns - 1) / kColumns;
  const auto work = [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kColumns, last = std::min(end * kColumns, width);
    for (int64_t row = 0; row < num_dst; ++row) {
      const int64_t at = row * width;
      for (int64_t c = first; c < last; ++c) {
        if (from[at + c] >= 0) sums[from[at + c] * width + c] += widen(grads[at + c]);
      }
    }
  };
  in_threads(num_lines, num_dst * width, kThreadNumbers, num_threads, work);
}

}  // namespace

void max_neighbors(const AggregateRequest& request, const void* x, void* out, int32_t* from) {
  check_block(request);
  switch (request.format) {
    case RowFormat::kFloat32:
      return max_all<float>(request, x, out, from);
    case RowFormat::kFloat64:
      return max_all<double>(request, x, out, from);
    case RowFormat::kBFloat16:
      return max_all<BFloat16>(request, x, out, from);
  }
}

void add_to_sources(const int32_t* from, const void* grad, void* into, int64_t num_dst,
                    int64_t num_src, int64_t width, RowFormat format, int num_threads) {
  for (int64_t i = 0; i < num_dst * width; ++i) {
    if (from[i] != -1 && !in_range(from[i], num_src)) {
      fail<GraphFormatError>("from[", i, "] is ", from[i], ", but there are ", num_src,
                             " rows of sources.");
    }
  }
  switch (format) {
    case RowFormat::kFloat32:
      return add_all<float>(from, grad, into, num_dst, width, num_threads);
    case RowFormat::kFloat64:
      return add_all<double>(from, grad, into, num_dst, width, num_threads);
    case RowFormat::kBFloat16:
      return add_all<BFloat16>(from, grad, into, num_dst, width, num_threads);
  }
}

}  // namespace lg
