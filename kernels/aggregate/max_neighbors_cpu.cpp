#include "aggregate/max_neighbors.h"

#include <algorithm>
#include <type_traits>

#include "common/error.h"
#include "common/isa.h"
#include "common/slices.h"
#include "gather_quantized/float_bits.h"
#include "gather_rows/copy_rows.h"

namespace lg {
namespace {

constexpr int64_t kTile =
    128;  // columns at a time: what is largest so far stays in the first-level cache
constexpr int64_t kColumns = 16;  // of float32, a line
constexpr int64_t kThreadNumbers = int64_t(1) << 19;

struct BFloat16 {
  uint16_t bits;
};

LG_ALWAYS_INLINE float widen(float value) { return value; }
LG_ALWAYS_INLINE double widen(double value) { return value; }
LG_ALWAYS_INLINE float widen(BFloat16 value) { return float_of(uint32_t(value.bits) << 16); }

LG_ALWAYS_INLINE void narrow(float value, float* out) { *out = value; }
LG_ALWAYS_INLINE void narrow(double value, double* out) { *out = value; }
// Exact: it was one.
LG_ALWAYS_INLINE void narrow(float value, BFloat16* out) {
  out->bits = uint16_t(bits_of(value) >> 16);
}

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
struct Rows {
  const int32_t* indptr;
  const int32_t* indices;
  const T* x;
  T* out;
  int32_t* from;
  int64_t width;
};

template <class T>
LG_ALWAYS_INLINE void max_tile(const Rows<T>& rows, int64_t row, int64_t column, int64_t size) {
  Wide<T> best[kTile];
  int32_t from[kTile];
  const int64_t begin = rows.indptr[row], end = rows.indptr[row + 1];
  for (int64_t e = begin; e < end; ++e) {
    const int32_t source = rows.indices[e];
    const T* const at = rows.x + source * rows.width + column;
    if (e + 2 < end) __builtin_prefetch(rows.x + rows.indices[e + 2] * rows.width + column);
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
  for (int64_t c = 0; c < size; ++c) narrow(begin < end ? best[c] : Wide<T>(0), out + c);
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
void max_all(const MaxRequest& request, const void* x, void* out, int32_t* from) {
  const Rows<T> rows{
      request.indptr, request.indices, static_cast<const T*>(x), static_cast<T*>(out),
      from,           request.width};
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

void check(const MaxRequest& request) {
  int64_t last = 0;
  bool ascends = request.indptr[0] == 0;
  for (int64_t d = 0; d <= request.num_dst; ++d) {
    ascends &= request.indptr[d] >= last;
    last = request.indptr[d];
  }
  if (!ascends || last != request.num_edges) {
    fail<GraphFormatError>("indptr must ascend from 0 to the number of edges, ", request.num_edges,
                           ", but it does not, or ends at ", last, ".");
  }
  for (int64_t e = 0; e < request.num_edges; ++e) {
    if (!in_range(request.indices[e], request.num_src)) {
      fail<GraphFormatError>("indices[", e, "] is ", request.indices[e], ", but there are ",
                             request.num_src, " rows of sources.");
    }
  }
}

}  // namespace

void max_neighbors(const MaxRequest& request, const void* x, void* out, int32_t* from) {
  check(request);
  switch (request.format) {
    case MaxFormat::kFloat32:
      return max_all<float>(request, x, out, from);
    case MaxFormat::kFloat64:
      return max_all<double>(request, x, out, from);
    case MaxFormat::kBFloat16:
      return max_all<BFloat16>(request, x, out, from);
  }
}

void add_to_sources(const int32_t* from, const void* grad, void* into, int64_t num_dst,
                    int64_t num_src, int64_t width, MaxFormat format, int num_threads) {
  for (int64_t i = 0; i < num_dst * width; ++i) {
    if (from[i] != -1 && !in_range(from[i], num_src)) {
      fail<GraphFormatError>("from[", i, "] is ", from[i], ", but there are ", num_src,
                             " rows of sources.");
    }
  }
  switch (format) {
    case MaxFormat::kFloat32:
      return add_all<float>(from, grad, into, num_dst, width, num_threads);
    case MaxFormat::kFloat64:
      return add_all<double>(from, grad, into, num_dst, width, num_threads);
    case MaxFormat::kBFloat16:
      return add_all<BFloat16>(from, grad, into, num_dst, width, num_threads);
  }
}

}  // namespace lg
