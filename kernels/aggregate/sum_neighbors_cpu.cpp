// The sum of both directions is one loop over rows of a compressed sparse matrix.
#include "aggregate/sum_neighbors.h"

#include <cstring>
#include <type_traits>
#include <vector>

#include "common/error.h"
#include "common/isa.h"
#include "common/slices.h"
#include "gather_rows/copy_rows.h"

namespace lg {
namespace {

// Vectors of a compiler, which a function's instruction set makes of one, two or four registers each.
typedef float Floats __attribute__((vector_size(64)));
typedef double Doubles __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
typedef uint32_t Words __attribute__((vector_size(64)));

template <class T>
struct Lanes {
  using type = Floats;
};
template <>
struct Lanes<double> {
  using type = Doubles;
};

LG_ALWAYS_INLINE void load(const float* from, Floats* to) { std::memcpy(to, from, sizeof *to); }
LG_ALWAYS_INLINE void load(const double* from, Doubles* to) { std::memcpy(to, from, sizeof *to); }
LG_ALWAYS_INLINE void load(const BFloat16* from, Floats* to) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  std::memcpy(to, &words, sizeof words);
}

template <class T>
struct Rows {
  const int32_t* indptr;
  const int32_t* indices;
  const T* in;
  T* out;
  int64_t width;
  bool is_mean;             // sums are divided by their number
  const Wide<T>* scale_of;  // what rows of `in` are multiplied by; nullptr: nothing
};

// What the sums of a row are multiplied by at the end.
template <class T>
LG_ALWAYS_INLINE Wide<T> share(const Rows<T>& rows, int64_t count) {
  return rows.is_mean && count ? Wide<T>(1) / Wide<T>(count) : Wide<T>(1);
}

// kVectors at a time stay in registers; returns the first column that is left.
template <int kVectors, bool kScaled, class T>
LG_ALWAYS_INLINE int64_t sum_vectors(const Rows<T>& rows, int64_t row, int64_t column) {
  constexpr int64_t kLanes = 64 / sizeof(Wide<T>), kColumns = kVectors * kLanes;
  const int64_t begin = rows.indptr[row], end = rows.indptr[row + 1];
  const Wide<T> by = share(rows, end - begin);
  for (; column + kColumns <= rows.width; column += kColumns) {
    typename Lanes<T>::type sums[kVectors] = {};
    for (int64_t e = begin; e < end; ++e) {
      const T* const from = rows.in + rows.indices[e] * rows.width + column;
      const T* const next = rows.in + rows.indices[std::min(e + 4, end - 1)] * rows.width + column;
      for (int64_t i = 0; i < kColumns; i += 64 / int64_t(sizeof(T))) __builtin_prefetch(next + i);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        typename Lanes<T>::type values;
        load(from + v * kLanes, &values);
        if constexpr (kScaled) values *= rows.scale_of[rows.indices[e]];
        sums[v] += values;
      }
    }
    Wide<T> wide[kColumns];
    for (int v = 0; v < kVectors; ++v) sums[v] *= by;
    std::memcpy(wide, sums, sizeof sums);
    T* const out = rows.out + row * rows.width + column;
    for (int64_t c = 0; c < kColumns; ++c) narrow(wide[c], out + c);
  }
  return column;
}

// The columns that fill no vector.
template <bool kScaled, class T>
LG_ALWAYS_INLINE void sum_rest(const Rows<T>& rows, int64_t row, int64_t column) {
  const int64_t begin = rows.indptr[row], end = rows.indptr[row + 1], size = rows.width - column;
  Wide<T> sums[64 / sizeof(Wide<T>)] = {};
  for (int64_t e = begin; e < end; ++e) {
    const T* const from = rows.in + rows.indices[e] * rows.width + column;
    const Wide<T> scale = kScaled ? rows.scale_of[rows.indices[e]] : Wide<T>(1);
    for (int64_t c = 0; c < size; ++c) sums[c] += widen(from[c]) * scale;
  }
  T* const out = rows.out + row * rows.width + column;
  for (int64_t c = 0; c < size; ++c) narrow(sums[c] * share(rows, end - begin), out + c);
}

template <int kVectors, bool kScaled, class T>
LG_ALWAYS_INLINE void sum_rows(const Rows<T>& rows, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    int64_t column = sum_vectors<kVectors, kScaled>(rows, row, 0);
    column = sum_vectors<1, kScaled>(rows, row, column);
    if (column < rows.width) sum_rest<kScaled>(rows, row, column);
  }
}

#ifdef LG_X86
template <bool kScaled, class T>
LG_TARGET_AVX2 void sum_rows_avx2(const Rows<T>& rows, int64_t begin, int64_t end) {
  sum_rows<4, kScaled>(rows, begin, end);
}

template <bool kScaled, class T>
LG_TARGET_AVX512 void sum_rows_avx512(const Rows<T>& rows, int64_t begin, int64_t end) {
  sum_rows<8, kScaled>(rows, begin, end);
}
#endif

template <bool kScaled, class T>
void sum_all(const Rows<T>& rows, int64_t num_rows, int num_threads) {
  const auto work = [&](int64_t begin, int64_t end) {
#ifdef LG_X86
    if (used_isa() == Isa::kAvx512) return sum_rows_avx512<kScaled>(rows, begin, end);
    if (used_isa() == Isa::kAvx2) return sum_rows_avx2<kScaled>(rows, begin, end);
#endif
    sum_rows<1, kScaled>(rows, begin, end);
  };
  in_threads(num_rows, rows.indptr[num_rows] * rows.width, kThreadNumbers, num_threads, work);
}

// Calls work on a null pointer of the numbers' type.
template <class Work>
void with_type(RowFormat format, const Work& work) {
  switch (format) {
    case RowFormat::kFloat32:
      return work(static_cast<float*>(nullptr));
    case RowFormat::kFloat64:
      return work(static_cast<double*>(nullptr));
    case RowFormat::kBFloat16:
      return work(static_cast<BFloat16*>(nullptr));
  }
}

// Edges by source, those of a source in the order of destinations: a counting sort.
struct Transpose {
  std::vector<int32_t> indptr, indices;

  explicit Transpose(const AggregateRequest& block)
      : indptr(size_t(block.num_src) + 1), indices(size_t(block.num_edges)) {
    for (int64_t e = 0; e < block.num_edges; ++e) ++indptr[size_t(block.indices[e]) + 1];
    for (size_t s = 1; s < indptr.size(); ++s) indptr[s] += indptr[s - 1];
    std::vector<int32_t> next = indptr;
    for (int64_t d = 0; d < block.num_dst; ++d) {
      for (int64_t e = block.indptr[d]; e < block.indptr[d + 1]; ++e)
        indices[size_t(next[size_t(block.indices[e])]++)] = int32_t(d);
    }
  }
};

}  // namespace

void sum_neighbors(const AggregateRequest& request, bool is_mean, const void* x, void* out) {
  check_block(request);
  with_type(request.format, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const Rows<T> rows{request.indptr,
                       request.indices,
                       static_cast<const T*>(x),
                       static_cast<T*>(out),
                       request.width,
                       is_mean,
                       nullptr};
    sum_all<false>(rows, request.num_dst, request.num_threads);
  });
}

void sum_destinations(const AggregateRequest& request, bool is_mean, const void* grad, void* out) {
  check_block(request);
  const Transpose edges(request);
  with_type(request.format, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    std::vector<Wide<T>> shares(is_mean ? size_t(request.num_dst) : 0);
    for (size_t d = 0; d < shares.size(); ++d) {
      const int32_t count = request.indptr[d + 1] - request.indptr[d];
      shares[d] = Wide<T>(1) / Wide<T>(std::max(count, 1));
    }
    const Rows<T> rows{edges.indptr.data(),  edges.indices.data(), static_cast<const T*>(grad),
                       static_cast<T*>(out), request.width,        false,
                       shares.data()};
    if (is_mean) return sum_all<true>(rows, request.num_src, request.num_threads);
    sum_all<false>(rows, request.num_src, request.num_threads);
  });
}

}  // namespace lg
