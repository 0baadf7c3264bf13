// eight_lanes.h: eight 32-bit numbers in a register, of which some are kept and others dropped, for AVX-512 and
// AVX2. As lanes.h: include it last, with LG_LANES defined.
#pragma once

#include "common/lanes.h"

namespace lg {
namespace {

struct Eight {
  __m256i v;
};

inline Eight splat8(uint32_t value) { return {_mm256_set1_epi32(int(value))}; }
inline Eight load8(const uint32_t* from) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
}
inline void store8(Eight a, uint32_t* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a.v);
}
inline Eight operator+(Eight a, Eight b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline Eight operator-(Eight a, Eight b) { return {_mm256_sub_epi32(a.v, b.v)}; }
inline Eight operator|(Eight a, Eight b) { return {_mm256_or_si256(a.v, b.v)}; }
inline Eight max8(Eight a, Eight b) { return {_mm256_max_epu32(a.v, b.v)}; }

// A flag a lane, in the form in which comparisons come.
#if LG_LANES == 512
struct Mask8 {
  __mmask8 v;
  uint32_t bits() const { return v; }
};
inline Mask8 operator&(Mask8 a, Mask8 b) { return {__mmask8(a.v & b.v)}; }
inline Mask8 above8(Eight a, Eight b) { return {_mm256_cmpgt_epu32_mask(a.v, b.v)}; }
inline Eight select8(Mask8 flags, Eight yes, Eight no) {
  return {_mm256_mask_blend_epi32(flags.v, no.v, yes.v)};
}
// The first `count` of eight, and zeros beyond, where there may be nothing. The processor waits for all lines that
// eight of them would lie in: with a kMost of 4, for those of four.
template <int kMost>
inline Eight load_some(const uint32_t* from, int64_t count) {
  return {_mm256_maskz_loadu_epi32(__mmask8(_bzhi_u32(0xff, uint32_t(count))), from)};
}
template <>
inline Eight load_some<4>(const uint32_t* from, int64_t count) {
  const __mmask8 flags = __mmask8(_bzhi_u32(0xf, uint32_t(count)));
  return {_mm256_zextsi128_si256(_mm_maskz_loadu_epi32(flags, from))};
}
#else
struct Mask8 {
  __m256i v;
  uint32_t bits() const { return uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(v))); }
};
inline Mask8 operator&(Mask8 a, Mask8 b) { return {_mm256_and_si256(a.v, b.v)}; }
inline Mask8 above8(Eight a, Eight b) {
  const __m256i at_most = _mm256_cmpeq_epi32(_mm256_max_epu32(a.v, b.v), b.v);
  return {_mm256_xor_si256(at_most, _mm256_set1_epi32(-1))};
}
inline Eight select8(Mask8 flags, Eight yes, Eight no) {
  return {_mm256_blendv_epi8(no.v, yes.v, flags.v)};
}
template <int kMost>
inline Eight load_some(const uint32_t* from, int64_t count) {
  const __m256i limit = _mm256_set1_epi32(int(count));
  const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_maskload_epi32(reinterpret_cast<const int*>(from),
                                _mm256_cmpgt_epi32(limit, numbers))};
}
template <>
inline Eight load_some<4>(const uint32_t* from, int64_t count) {
  const __m128i limit = _mm_set1_epi32(int(count));
  const __m128i some = _mm_maskload_epi32(reinterpret_cast<const int*>(from),
                                          _mm_cmpgt_epi32(limit, _mm_setr_epi32(0, 1, 2, 3)));
  return {_mm256_zextsi128_si256(some)};
}

// For each of 256 masks, the flagged lanes side by side.
struct Orders8 {
  alignas(8) uint8_t of[256][8] = {};
  constexpr Orders8() {
    for (int mask = 0; mask < 256; ++mask) {
      for (int lane = 0, at = 0; lane < 8; ++lane) {
        if (mask >> lane & 1) of[mask][at++] = uint8_t(lane);
      }
    }
  }
};
constexpr Orders8 kOrders8;
#endif

// Puts flagged lanes side by side: all eight are written, of which `size` count.
class Order8 {
 public:
  const int64_t size;

#if LG_LANES == 512
  explicit Order8(Mask8 flags) : size(__builtin_popcount(flags.bits())), flags_(flags.v) {}

 private:
  Eight ordered(Eight a) const { return {_mm256_maskz_compress_epi32(flags_, a.v)}; }
  const __mmask8 flags_;
#else
  explicit Order8(Mask8 flags)
      : size(__builtin_popcount(flags.bits())),
        lanes_(_mm256_cvtepu8_epi32(
            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kOrders8.of[flags.bits()])))) {}

 private:
  Eight ordered(Eight a) const { return {_mm256_permutevar8x32_epi32(a.v, lanes_)}; }
  const __m256i lanes_;
#endif

 public:
  void put(Eight a, uint32_t* to) const { store8(ordered(a), to); }
  // With what stands above each of them.
  void put(Eight a, int64_t above, int64_t* to) const {
    const __m256i all = ordered(a).v, base = _mm256_set1_epi64x(above);
    const __m128i halves[2] = {_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)};
    for (int h = 0; h < 2; ++h) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 4 * h),
                          _mm256_add_epi64(base, _mm256_cvtepu32_epi64(halves[h])));
    }
  }
};

inline int64_t sum8(Eight a) {
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
  return uint32_t(_mm_cvtsi128_si32(sum));
}

inline uint32_t largest8(Eight a) {
  alignas(32) uint32_t of[8];
  store8(a, of);
  uint32_t most = 0;
  for (uint32_t each : of) most = each > most ? each : most;
  return most;
}

}  // namespace
}  // namespace lg
