// lanes.h: sixteen 32-bit numbers in vector registers, under one interface for AVX-512 and AVX2.
//
// A file that includes this one defines LG_LANES as 512 or 256, and includes all else before: from
// here on its functions may use those instructions. Everything here has internal linkage, so that no
// other file gets instructions that its machine may lack.
#pragma once

#include <immintrin.h>

#include <cstdint>

#ifdef __GNUC__
// GCC 12 warns of its own intrinsics, which leave registers undefined on purpose (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#if LG_LANES == 512
#pragma GCC target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi,bmi2,lzcnt,popcnt")
#else
#pragma GCC target("avx2,bmi,bmi2,lzcnt,popcnt")
#endif

namespace lg {
namespace {

constexpr int kLanes = 16;
constexpr uint32_t kAllLanes = 0xffff;
using LaneMask = uint32_t;  // bit l: lane l

#if LG_LANES == 512

struct Lanes {
  __m512i v;

  static Lanes splat(uint32_t value) { return {_mm512_set1_epi32(int(value))}; }
  static Lanes load(const uint32_t* from) { return {_mm512_loadu_si512(from)}; }
  void store(uint32_t* to) const { _mm512_storeu_si512(to, v); }
};

inline Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline Lanes operator^(Lanes a, Lanes b) { return {_mm512_xor_si512(a.v, b.v)}; }
// Shifts by 32 and more make 0.
inline Lanes operator>>(Lanes a, Lanes b) { return {_mm512_srlv_epi32(a.v, b.v)}; }
inline LaneMask equal(Lanes a, Lanes b) { return _mm512_cmpeq_epi32_mask(a.v, b.v); }
inline LaneMask less(Lanes a, Lanes b) { return _mm512_cmplt_epu32_mask(a.v, b.v); }
inline LaneMask odd(Lanes a) { return _mm512_test_epi32_mask(a.v, _mm512_set1_epi32(1)); }

// `yes` in the lanes of the mask, `no` in the others.
inline Lanes select(LaneMask mask, Lanes yes, Lanes no) {
  return {_mm512_mask_blend_epi32(__mmask16(mask), no.v, yes.v)};
}

// table[index], both sixteen lanes.
inline Lanes lookup(Lanes table, Lanes index) {
  return {_mm512_permutexvar_epi32(index.v, table.v)};
}

// The high halves of the products; the low halves go to `low`.
inline Lanes multiply(Lanes a, Lanes b, Lanes& low) {
  const __m512i even = _mm512_mul_epu32(a.v, b.v);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), _mm512_srli_epi64(b.v, 32));
  low.v = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
  return {_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xAAAA, odd)};
}

// The lanes that equal a lane before them.
inline LaneMask repeats(Lanes a) {
  const __m512i conflicts = _mm512_conflict_epi32(a.v);
  return _mm512_test_epi32_mask(conflicts, conflicts);
}

// The lanes of `a` that equal any lane of `b`.
inline LaneMask members(Lanes a, Lanes b) {
  LaneMask found = equal(a, b);
  for (int i = 1; i < kLanes; ++i) {
    b.v = _mm512_alignr_epi32(b.v, b.v, 1);
    found |= equal(a, b);
  }
  return found;
}

// to[l] = base + a[l].
inline void store_plus(int64_t base, Lanes a, int64_t* to) {
  const __m512i bases = _mm512_set1_epi64(base);
  const __m512i low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(a.v));
  const __m512i high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(a.v, 1));
  _mm512_storeu_si512(to, _mm512_add_epi64(bases, low));
  _mm512_storeu_si512(to + 8, _mm512_add_epi64(bases, high));
}

// The words x, y, z, w of lane l, side by side; lanes in the order 0 4 8 12, 1 5 9 13, ...
inline void store_words(Lanes x, Lanes y, Lanes z, Lanes w, uint32_t* to) {
  const __m512i xy_low = _mm512_unpacklo_epi32(x.v, y.v), zw_low = _mm512_unpacklo_epi32(z.v, w.v);
  const __m512i xy_high = _mm512_unpackhi_epi32(x.v, y.v),
                zw_high = _mm512_unpackhi_epi32(z.v, w.v);
  _mm512_storeu_si512(to, _mm512_unpacklo_epi64(xy_low, zw_low));
  _mm512_storeu_si512(to + 16, _mm512_unpackhi_epi64(xy_low, zw_low));
  _mm512_storeu_si512(to + 32, _mm512_unpacklo_epi64(xy_high, zw_high));
  _mm512_storeu_si512(to + 48, _mm512_unpackhi_epi64(xy_high, zw_high));
}

#else

struct Lanes {
  __m256i v[2];

  static Lanes splat(uint32_t value) {
    const __m256i all = _mm256_set1_epi32(int(value));
    return {{all, all}};
  }
  static Lanes load(const uint32_t* from) {
    return {{_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)),
             _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 8))}};
  }
  void store(uint32_t* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v[0]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8), v[1]);
  }
};

inline LaneMask bits(__m256i low, __m256i high) {
  return LaneMask(_mm256_movemask_ps(_mm256_castsi256_ps(low))) |
         LaneMask(_mm256_movemask_ps(_mm256_castsi256_ps(high))) << 8;
}

inline Lanes operator+(Lanes a, Lanes b) {
  return {{_mm256_add_epi32(a.v[0], b.v[0]), _mm256_add_epi32(a.v[1], b.v[1])}};
}
inline Lanes operator-(Lanes a, Lanes b) {
  return {{_mm256_sub_epi32(a.v[0], b.v[0]), _mm256_sub_epi32(a.v[1], b.v[1])}};
}
inline Lanes operator>>(Lanes a, Lanes b) {
  return {{_mm256_srlv_epi32(a.v[0], b.v[0]), _mm256_srlv_epi32(a.v[1], b.v[1])}};
}
inline Lanes operator^(Lanes a, Lanes b) {
  return {{_mm256_xor_si256(a.v[0], b.v[0]), _mm256_xor_si256(a.v[1], b.v[1])}};
}
inline LaneMask equal(Lanes a, Lanes b) {
  return bits(_mm256_cmpeq_epi32(a.v[0], b.v[0]), _mm256_cmpeq_epi32(a.v[1], b.v[1]));
}
inline LaneMask less(Lanes a, Lanes b) {
  // Signed compares serve once the sign bits are flipped.
  const __m256i sign = _mm256_set1_epi32(INT32_MIN);
  const auto half = [sign](__m256i x, __m256i y) {
    return _mm256_cmpgt_epi32(_mm256_xor_si256(y, sign), _mm256_xor_si256(x, sign));
  };
  return bits(half(a.v[0], b.v[0]), half(a.v[1], b.v[1]));
}

inline LaneMask odd(Lanes a) {
  return bits(_mm256_slli_epi32(a.v[0], 31), _mm256_slli_epi32(a.v[1], 31));
}

inline Lanes select(LaneMask mask, Lanes yes, Lanes no) {
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const auto half = [bit](uint32_t m, __m256i y, __m256i n) {
    const __m256i chosen =
        _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(int(m)), bit), bit);
    return _mm256_blendv_epi8(n, y, chosen);
  };
  return {{half(mask, yes.v[0], no.v[0]), half(mask >> 8, yes.v[1], no.v[1])}};
}

inline Lanes lookup(Lanes table, Lanes index) {
  const auto half = [&table](__m256i i) {
    const __m256i low = _mm256_permutevar8x32_epi32(table.v[0], i);
    const __m256i high = _mm256_permutevar8x32_epi32(table.v[1], i);
    const __m256i is_high = _mm256_slli_epi32(i, 28);  // bit 3 becomes the sign
    return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high),
                                                _mm256_castsi256_ps(is_high)));
  };
  return {{half(index.v[0]), half(index.v[1])}};
}

inline Lanes multiply(Lanes a, Lanes b, Lanes& low) {
  Lanes high;
  for (int h = 0; h < 2; ++h) {
    const __m256i even = _mm256_mul_epu32(a.v[h], b.v[h]);
    const __m256i odd =
        _mm256_mul_epu32(_mm256_srli_epi64(a.v[h], 32), _mm256_srli_epi64(b.v[h], 32));
    low.v[h] = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
    high.v[h] = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
  }
  return high;
}

inline __m256i rotate(__m256i a) {
  return _mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 0));
}

inline LaneMask repeats(Lanes a) {
  LaneMask found = 0;
  __m256i low = a.v[0], high = a.v[1];
  const auto same = [](__m256i x, __m256i y) {
    return LaneMask(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(x, y))));
  };
  found |= same(a.v[1], low) << 8;
  for (int i = 1; i < 8; ++i) {
    low = rotate(low);
    high = rotate(high);
    // After i rotations lane l holds lane l + i - 8 of the same half where l >= 8 - i.
    const LaneMask before = 0xffu << (8 - i) & 0xffu;
    found |= same(a.v[0], low) & before;
    found |= (same(a.v[1], high) & before) << 8;
    found |= same(a.v[1], low) << 8;
  }
  return found;
}

inline LaneMask members(Lanes a, Lanes b) {
  LaneMask found = 0;
  for (int i = 0; i < 8; ++i) {
    found |= equal(a, {{b.v[0], b.v[0]}}) | equal(a, {{b.v[1], b.v[1]}});
    b = {{rotate(b.v[0]), rotate(b.v[1])}};
  }
  return found;
}

inline void store_plus(int64_t base, Lanes a, int64_t* to) {
  const __m256i bases = _mm256_set1_epi64x(base);
  const __m128i quarter[4] = {_mm256_castsi256_si128(a.v[0]), _mm256_extracti128_si256(a.v[0], 1),
                              _mm256_castsi256_si128(a.v[1]), _mm256_extracti128_si256(a.v[1], 1)};
  for (int q = 0; q < 4; ++q) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 4 * q),
                        _mm256_add_epi64(bases, _mm256_cvtepu32_epi64(quarter[q])));
  }
}

inline void store_words(Lanes x, Lanes y, Lanes z, Lanes w, uint32_t* to) {
  __m256i group[4][2];  // lanes 0 4, 1 5, 2 6, 3 7; then 8 more of each
  for (int h = 0; h < 2; ++h) {
    const __m256i xy_low = _mm256_unpacklo_epi32(x.v[h], y.v[h]);
    const __m256i zw_low = _mm256_unpacklo_epi32(z.v[h], w.v[h]);
    const __m256i xy_high = _mm256_unpackhi_epi32(x.v[h], y.v[h]);
    const __m256i zw_high = _mm256_unpackhi_epi32(z.v[h], w.v[h]);
    group[0][h] = _mm256_unpacklo_epi64(xy_low, zw_low);
    group[1][h] = _mm256_unpackhi_epi64(xy_low, zw_low);
    group[2][h] = _mm256_unpacklo_epi64(xy_high, zw_high);
    group[3][h] = _mm256_unpackhi_epi64(xy_high, zw_high);
  }
  for (int g = 0; g < 4; ++g) {
    for (int h = 0; h < 2; ++h) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 16 * g + 8 * h), group[g][h]);
    }
  }
}

#endif

inline Lanes first_lanes() {
  alignas(64) static constexpr uint32_t kNumbers[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                            8, 9, 10, 11, 12, 13, 14, 15};
  return Lanes::load(kNumbers);
}

// The lanes l < count.
inline LaneMask below(int count) {
  return count >= kLanes ? kAllLanes : count > 0 ? (1u << count) - 1 : 0;
}

}  // namespace
}  // namespace lg
