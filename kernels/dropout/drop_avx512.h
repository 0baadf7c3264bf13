// drop_avx512.h: dropping whole chunks, 32 elements at a time.
//
// Words are computed in lanes of 64 bits whose upper halves hold rubbish, as products read the lower
// ones alone: a round is two products, two shifts and two three-way xors.
#pragma once

#include "common/isa.h"
#include "dropout/drop_chunks.h"

#ifdef LG_X86
#include <immintrin.h>

// GCC 12 warns of its own intrinsics, which leave registers undefined on purpose (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace lg {

LG_TARGET_AVX512 inline void draw_avx512(DropoutKey key, int64_t chunk,
                                         __m512i halves[kBlockWords]) {
  const __m512i by0 = _mm512_set1_epi64(kPhiloxMultiplier0);
  const __m512i by1 = _mm512_set1_epi64(kPhiloxMultiplier1);
  const uint64_t first = uint64_t(chunk) * kChunkBlocks;
  __m512i x[2], y[2], z[2], w[2];  // of even and of odd blocks
  for (int odd = 0; odd < 2; ++odd) {
    x[odd] = _mm512_add_epi64(_mm512_set1_epi64(int64_t(uint32_t(first)) + odd),
                              _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0));
    y[odd] = _mm512_set1_epi64(int64_t(first >> 32));
    z[odd] = _mm512_set1_epi64(int64_t(key.high));
    w[odd] = _mm512_set1_epi64(int64_t(key.high >> 32));
  }
  uint32_t key0 = uint32_t(key.low), key1 = uint32_t(key.low >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const __m512i round0 = _mm512_set1_epi64(key0), round1 = _mm512_set1_epi64(key1);
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      const __m512i product0 = _mm512_mul_epu32(x[odd], by0);
      const __m512i product1 = _mm512_mul_epu32(z[odd], by1);
      constexpr int kXor = 0x96;
      x[odd] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product1, 32), y[odd], round0, kXor);
      z[odd] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product0, 32), w[odd], round1, kXor);
      y[odd] = product1;
      w[odd] = product0;
    }
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  constexpr __mmask16 kOdd = 0xAAAA;
  halves[0] = _mm512_mask_blend_epi32(kOdd, x[0], _mm512_slli_epi64(x[1], 32));
  halves[1] = _mm512_mask_blend_epi32(kOdd, y[0], _mm512_slli_epi64(y[1], 32));
  halves[2] = _mm512_mask_blend_epi32(kOdd, z[0], _mm512_slli_epi64(z[1], 32));
  halves[3] = _mm512_mask_blend_epi32(kOdd, w[0], _mm512_slli_epi64(w[1], 32));
}

LG_TARGET_AVX512 inline __m512 load16(const float* from) { return _mm512_loadu_ps(from); }
LG_TARGET_AVX512 inline __m512 load16(const BFloat16* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
LG_TARGET_AVX512 inline __m512 load16(const Float16* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

LG_TARGET_AVX512 inline void store16(float* to, __m512 values) { _mm512_storeu_ps(to, values); }
LG_TARGET_AVX512 inline void store16(BFloat16* to, __m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i away = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), last);
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_mask_set1_epi32(_mm512_srli_epi32(away, 16), nan, 0x7fc0);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(rounded));
}
LG_TARGET_AVX512 inline void store16(Float16* to, __m512 values) {
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __m256i bits = _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_mask_set1_epi16(bits, nan, 0x7e00));
}

template <DropBy by, class T>
LG_TARGET_AVX512 void drop_avx512(const T* in, T* out, uint32_t* bits, int64_t begin, int64_t end,
                                  const DropLaw& law) {
  const __m512 scale = _mm512_set1_ps(float(law.scale)), zero = _mm512_setzero_ps();
  const __m512i threshold = _mm512_set1_epi16(short(law.threshold));
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    __m512i halves[kBlockWords];
    if (by != DropBy::kBits) draw_avx512(law.key, chunk, halves);
#pragma GCC unroll 4
    for (int k = 0; k < kBlockWords; ++k) {
      const int64_t word = chunk * kBlockWords + k;
      const __m512 low = load16(in + 32 * word), high = load16(in + 32 * word + 16);
      const uint32_t keep =
          by == DropBy::kBits ? bits[word] : _mm512_cmpge_epu16_mask(halves[k], threshold);
      __mmask16 keep_low = __mmask16(keep), keep_high = __mmask16(keep >> 16);
      if (by == DropBy::kKeyAndRelu) {
        keep_low = _mm512_mask_cmp_ps_mask(keep_low, low, zero, _CMP_NLE_UQ);
        keep_high = _mm512_mask_cmp_ps_mask(keep_high, high, zero, _CMP_NLE_UQ);
      }
      if (by != DropBy::kBits && bits) bits[word] = uint32_t(keep_high) << 16 | keep_low;
      store16(out + 32 * word, _mm512_maskz_mul_ps(keep_low, low, scale));
      store16(out + 32 * word + 16, _mm512_maskz_mul_ps(keep_high, high, scale));
    }
  }
}

}  // namespace lg

#endif
