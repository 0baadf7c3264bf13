// drop_avx2.h: dropping whole chunks, 16 elements at a time; see drop_avx512.h.
#pragma once

#include "common/isa.h"
#include "dropout/drop_chunks.h"

#ifdef LG_X86
#include <immintrin.h>

namespace lg {

// Of half a chunk's blocks: halves[k] is for elements 32 k + 16 half and the 15 behind it.
LG_TARGET_AVX2 inline void draw_avx2(DropoutKey key, int64_t chunk, int half,
                                     __m256i halves[kBlockWords]) {
  const __m256i by0 = _mm256_set1_epi64x(kPhiloxMultiplier0);
  const __m256i by1 = _mm256_set1_epi64x(kPhiloxMultiplier1);
  const uint64_t first = uint64_t(chunk) * kChunkBlocks + uint64_t(half) * (kChunkBlocks / 2);
  __m256i x[2], y[2], z[2], w[2];
  for (int odd = 0; odd < 2; ++odd) {
    x[odd] = _mm256_add_epi64(_mm256_set1_epi64x(int64_t(uint32_t(first)) + odd),
                              _mm256_set_epi64x(6, 4, 2, 0));
    y[odd] = _mm256_set1_epi64x(int64_t(first >> 32));
    z[odd] = _mm256_set1_epi64x(int64_t(key.high));
    w[odd] = _mm256_set1_epi64x(int64_t(key.high >> 32));
  }
  uint32_t key0 = uint32_t(key.low), key1 = uint32_t(key.low >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const __m256i round0 = _mm256_set1_epi64x(key0), round1 = _mm256_set1_epi64x(key1);
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      const __m256i product0 = _mm256_mul_epu32(x[odd], by0);
      const __m256i product1 = _mm256_mul_epu32(z[odd], by1);
      x[odd] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), y[odd]), round0);
      z[odd] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), w[odd]), round1);
      y[odd] = product1;
      w[odd] = product0;
    }
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  const int kOdd = 0xAA;
  halves[0] = _mm256_blend_epi32(x[0], _mm256_slli_epi64(x[1], 32), kOdd);
  halves[1] = _mm256_blend_epi32(y[0], _mm256_slli_epi64(y[1], 32), kOdd);
  halves[2] = _mm256_blend_epi32(z[0], _mm256_slli_epi64(z[1], 32), kOdd);
  halves[3] = _mm256_blend_epi32(w[0], _mm256_slli_epi64(w[1], 32), kOdd);
}

LG_TARGET_AVX2 inline __m256 load8(const float* from) { return _mm256_loadu_ps(from); }
LG_TARGET_AVX2 inline __m256 load8(const BFloat16* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

LG_TARGET_AVX2 inline void store8(float* to, __m256 values) { _mm256_storeu_ps(to, values); }
LG_TARGET_AVX2 inline void store8(BFloat16* to, __m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i away = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), last);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  const __m256i rounded =
      _mm256_blendv_epi8(_mm256_srli_epi32(away, 16), _mm256_set1_epi32(0x7fc0), nan);
  const __m128i low = _mm256_castsi256_si128(rounded), high = _mm256_extracti128_si256(rounded, 1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_packus_epi32(low, high));
}

// A lane's own bit of eight.
LG_TARGET_AVX2 inline __m256i spread_bits(uint32_t eight) {
  const __m256i own = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(int(eight)), own), own);
}

template <DropBy by, class T>
LG_TARGET_AVX2 void drop_avx2(const T* in, T* out, uint32_t* bits, int64_t begin, int64_t end,
                              const DropLaw& law) {
  const __m256 scale = _mm256_set1_ps(float(law.scale)), zero = _mm256_setzero_ps();
  const __m256i threshold = _mm256_set1_epi16(short(law.threshold));
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    __m256i halves[2][kBlockWords];
    if (by != DropBy::kBits) {
      draw_avx2(law.key, chunk, 0, halves[0]);
      draw_avx2(law.key, chunk, 1, halves[1]);
    }
    for (int k = 0; k < kBlockWords; ++k) {
      const int64_t word = chunk * kBlockWords + k;
      uint32_t kept = 0;
      for (int part = 0; part < 4; ++part) {
        const int64_t at = 32 * word + 8 * part;
        const __m256 values = load8(in + at);
        __m256i keep;
        if (by == DropBy::kBits) {
          keep = spread_bits(bits[word] >> 8 * part);
        } else {
          const __m256i drawn = halves[part / 2][k];
          const __m256i all = _mm256_cmpeq_epi16(_mm256_max_epu16(drawn, threshold), drawn);
          keep = _mm256_cvtepi16_epi32(part % 2 ? _mm256_extracti128_si256(all, 1)
                                                : _mm256_castsi256_si128(all));
        }
        __m256 mask = _mm256_castsi256_ps(keep);
        if (by == DropBy::kKeyAndRelu) {
          mask = _mm256_and_ps(mask, _mm256_cmp_ps(values, zero, _CMP_NLE_UQ));
        }
        kept |= uint32_t(_mm256_movemask_ps(mask)) << 8 * part;
        store8(out + at, _mm256_and_ps(mask, _mm256_mul_ps(values, scale)));
      }
      if (by != DropBy::kBits && bits) bits[word] = kept;
    }
  }
}

}  // namespace lg

#endif
