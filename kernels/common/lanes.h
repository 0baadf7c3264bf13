// lanes.h: 32-bit numbers in vector registers, under one interface for AVX-512 and AVX2: a Vector is a
// register, of sixteen or eight of them; Lanes are always sixteen.
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
using LaneMask = uint32_t;  // bit l: lane l

// Flags: true or false in each lane of a Vector, in whatever form comparisons come.
#if LG_LANES == 512

constexpr int kVectorLanes = 16;

struct Vector {
  __m512i v;

  static Vector splat(uint32_t value) { return {_mm512_set1_epi32(int(value))}; }
  static Vector load(const uint32_t* from) { return {_mm512_loadu_si512(from)}; }
  void store(uint32_t* to) const { _mm512_storeu_si512(to, v); }
};

inline Vector operator+(Vector a, Vector b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Vector operator^(Vector a, Vector b) { return {_mm512_xor_si512(a.v, b.v)}; }

struct Flags {
  __mmask16 v;

  static Flags splat(bool value) { return {__mmask16(value ? 0xffff : 0)}; }
};

inline Flags operator|(Flags a, Flags b) { return {__mmask16(a.v | b.v)}; }
inline Flags operator&(Flags a, Flags b) { return {__mmask16(a.v & b.v)}; }
inline Flags equal(Vector a, Vector b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
inline Flags at_least(Vector a, Vector b) { return {_mm512_cmpge_epu32_mask(a.v, b.v)}; }
inline LaneMask bits(Flags a) { return a.v; }

// `yes` in the lanes that are flagged, `no` in the others.
inline Vector select(Flags flags, Vector yes, Vector no) {
  return {_mm512_mask_blend_epi32(flags.v, no.v, yes.v)};
}

// The high halves of the products; the low halves go to `low`.
inline Vector multiply(Vector a, Vector b, Vector& low) {
  const __m512i even = _mm512_mul_epu32(a.v, b.v);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), _mm512_srli_epi64(b.v, 32));
  low.v = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
  return {_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xAAAA, odd)};
}

#else

constexpr int kVectorLanes = 8;

struct Vector {
  __m256i v;

  static Vector splat(uint32_t value) { return {_mm256_set1_epi32(int(value))}; }
  static Vector load(const uint32_t* from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
  }
  void store(uint32_t* to) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v); }
};

inline Vector operator+(Vector a, Vector b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline Vector operator^(Vector a, Vector b) { return {_mm256_xor_si256(a.v, b.v)}; }

struct Flags {
  __m256i v;

  static Flags splat(bool value) { return {_mm256_set1_epi32(value ? -1 : 0)}; }
};

inline Flags operator|(Flags a, Flags b) { return {_mm256_or_si256(a.v, b.v)}; }
inline Flags operator&(Flags a, Flags b) { return {_mm256_and_si256(a.v, b.v)}; }
inline Flags equal(Vector a, Vector b) { return {_mm256_cmpeq_epi32(a.v, b.v)}; }
inline Flags at_least(Vector a, Vector b) { return equal(a, {_mm256_max_epu32(a.v, b.v)}); }
inline LaneMask bits(Flags a) { return LaneMask(_mm256_movemask_ps(_mm256_castsi256_ps(a.v))); }

inline Vector select(Flags flags, Vector yes, Vector no) {
  return {_mm256_blendv_epi8(no.v, yes.v, flags.v)};
}

inline Vector multiply(Vector a, Vector b, Vector& low) {
  const __m256i even = _mm256_mul_epu32(a.v, b.v);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a.v, 32), _mm256_srli_epi64(b.v, 32));
  low.v = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA)};
}

#endif

constexpr int kVectors = kLanes / kVectorLanes;

struct Lanes {
  Vector of[kVectors];

  static Lanes splat(uint32_t value) {
    return each([=](int) { return Vector::splat(value); });
  }
  static Lanes load(const uint32_t* from) {
    return each([=](int i) { return Vector::load(from + i * kVectorLanes); });
  }

  template <class Make>
  static Lanes each(const Make& make) {
    Lanes made;
    for (int i = 0; i < kVectors; ++i) made.of[i] = make(i);
    return made;
  }
};

inline Lanes operator+(const Lanes& a, const Lanes& b) {
  return Lanes::each([&](int i) { return a.of[i] + b.of[i]; });
}
inline Lanes operator^(const Lanes& a, const Lanes& b) {
  return Lanes::each([&](int i) { return a.of[i] ^ b.of[i]; });
}
inline Lanes multiply(const Lanes& a, const Lanes& b, Lanes& low) {
  return Lanes::each([&](int i) { return multiply(a.of[i], b.of[i], low.of[i]); });
}

// table[index], both sixteen lanes.
inline Lanes lookup(const Lanes& table, const Lanes& index) {
#if LG_LANES == 512
  return {{{_mm512_permutexvar_epi32(index.of[0].v, table.of[0].v)}}};
#else
  return Lanes::each([&](int i) -> Vector {
    const __m256i number = index.of[i].v;
    const __m256i low = _mm256_permutevar8x32_epi32(table.of[0].v, number);
    const __m256i high = _mm256_permutevar8x32_epi32(table.of[1].v, number);
    const __m256i is_high = _mm256_slli_epi32(number, 28);  // bit 3 becomes the sign
    return {_mm256_castps_si256(_mm256_blendv_ps(
        _mm256_castsi256_ps(low), _mm256_castsi256_ps(high), _mm256_castsi256_ps(is_high)))};
  });
#endif
}

// Where store_words() puts the words of each lane, and which lane's words are there: its own inverse.
alignas(64) constexpr uint32_t kPlace[kLanes] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                 2, 6, 10, 14, 3, 7, 11, 15};

// The words x, y, z, w of lane l, side by side, as number kPlace[l].
inline void store_words(const Lanes& x, const Lanes& y, const Lanes& z, const Lanes& w,
                        uint32_t* to) {
#if LG_LANES == 512
  const __m512i xy_low = _mm512_unpacklo_epi32(x.of[0].v, y.of[0].v),
                zw_low = _mm512_unpacklo_epi32(z.of[0].v, w.of[0].v);
  const __m512i xy_high = _mm512_unpackhi_epi32(x.of[0].v, y.of[0].v),
                zw_high = _mm512_unpackhi_epi32(z.of[0].v, w.of[0].v);
  _mm512_storeu_si512(to, _mm512_unpacklo_epi64(xy_low, zw_low));
  _mm512_storeu_si512(to + 16, _mm512_unpackhi_epi64(xy_low, zw_low));
  _mm512_storeu_si512(to + 32, _mm512_unpacklo_epi64(xy_high, zw_high));
  _mm512_storeu_si512(to + 48, _mm512_unpackhi_epi64(xy_high, zw_high));
#else
  __m256i group[4][2];  // lanes 0 4, 1 5, 2 6, 3 7; then 8 more of each
  for (int h = 0; h < 2; ++h) {
    const __m256i xy_low = _mm256_unpacklo_epi32(x.of[h].v, y.of[h].v);
    const __m256i zw_low = _mm256_unpacklo_epi32(z.of[h].v, w.of[h].v);
    const __m256i xy_high = _mm256_unpackhi_epi32(x.of[h].v, y.of[h].v);
    const __m256i zw_high = _mm256_unpackhi_epi32(z.of[h].v, w.of[h].v);
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
#endif
}

// to[i] = base + from[i], for four of them.
inline void store_plus(int64_t base, const uint32_t* from, int64_t* to) {
  const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_add_epi64(_mm256_set1_epi64x(base), _mm256_cvtepu32_epi64(four)));
}

}  // namespace
}  // namespace lg
