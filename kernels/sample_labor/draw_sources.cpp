#include "sample_labor/draw_sources.h"

#include "common/isa.h"

#ifdef LG_X86
#include <immintrin.h>
// GCC 12 finds fault with its own <immintrin.h> (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace lg {
namespace {

template <class Index>
void draw_baseline(const SourceKey& key, const Index* nodes, int64_t count, uint64_t* words) {
  for (int64_t i = 0; i < count; ++i) {
    words[i] = source_draw(node_draws(key.stream, key.step, key.hop, nodes[i]));
  }
}

#ifdef LG_X86

// One node a lane of 64 bits. A counter's word is the lane's low half: multiplication ignores the
// high half, which is left as it comes. The rounds are those of philox().

LG_TARGET_AVX2 inline __m256i load_avx2(const int32_t* nodes) {
  return _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(nodes)));
}

LG_TARGET_AVX2 inline __m256i load_avx2(const int64_t* nodes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(nodes));
}

LG_TARGET_AVX2 inline __m256i draw_lanes(const SourceKey& key, __m256i x) {
  const __m256i multiplier0 = _mm256_set1_epi64x(kPhiloxMultiplier0);
  const __m256i multiplier1 = _mm256_set1_epi64x(kPhiloxMultiplier1);
  const __m256i hop = _mm256_set1_epi64x(key.hop << 16);
  __m256i y = _mm256_or_si256(_mm256_srli_epi64(x, 32), hop);
  __m256i z = _mm256_set1_epi64x(key.step);
  __m256i w = _mm256_set1_epi64x(kSourceBlock);
  uint32_t key0 = key.stream.draw0, key1 = key.stream.draw1;
#pragma GCC unroll 10
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const __m256i product0 = _mm256_mul_epu32(x, multiplier0);
    const __m256i product1 = _mm256_mul_epu32(z, multiplier1);
    const __m256i mixed0 = _mm256_xor_si256(y, _mm256_set1_epi64x(key0));
    const __m256i mixed1 = _mm256_xor_si256(w, _mm256_set1_epi64x(key1));
    x = _mm256_xor_si256(_mm256_srli_epi64(product1, 32), mixed0);
    y = product1;
    z = _mm256_xor_si256(_mm256_srli_epi64(product0, 32), mixed1);
    w = product0;
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return _mm256_blend_epi32(y, _mm256_slli_epi64(x, 32), 0b10101010);
}

LG_TARGET_AVX512 inline __m512i load_avx512(const int32_t* nodes) {
  return _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(nodes)));
}

LG_TARGET_AVX512 inline __m512i load_avx512(const int64_t* nodes) {
  return _mm512_loadu_si512(nodes);
}

LG_TARGET_AVX512 inline __m512i load_avx512(__mmask8 lanes, const int32_t* nodes) {
  return _mm512_cvtepu32_epi64(_mm256_maskz_loadu_epi32(lanes, nodes));
}

LG_TARGET_AVX512 inline __m512i load_avx512(__mmask8 lanes, const int64_t* nodes) {
  return _mm512_maskz_loadu_epi64(lanes, nodes);
}

LG_TARGET_AVX512 inline __m512i draw_lanes(const SourceKey& key, __m512i x) {
  constexpr int kXor3 = 0x96;
  const __m512i multiplier0 = _mm512_set1_epi64(kPhiloxMultiplier0);
  const __m512i multiplier1 = _mm512_set1_epi64(kPhiloxMultiplier1);
  const __m512i hop = _mm512_set1_epi64(key.hop << 16);
  __m512i y = _mm512_or_si512(_mm512_srli_epi64(x, 32), hop);
  __m512i z = _mm512_set1_epi64(key.step);
  __m512i w = _mm512_set1_epi64(kSourceBlock);
  uint32_t key0 = key.stream.draw0, key1 = key.stream.draw1;
#pragma GCC unroll 10
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const __m512i product0 = _mm512_mul_epu32(x, multiplier0);
    const __m512i product1 = _mm512_mul_epu32(z, multiplier1);
    const __m512i round_key0 = _mm512_set1_epi64(key0), round_key1 = _mm512_set1_epi64(key1);
    x = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product1, 32), y, round_key0, kXor3);
    y = product1;
    z = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product0, 32), w, round_key1, kXor3);
    w = product0;
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return _mm512_mask_blend_epi32(0xaaaa, y, _mm512_slli_epi64(x, 32));
}

// The key is a copy, which stores of vectors, that may alias anything, cannot be thought to change.

template <class Index>
LG_TARGET_AVX2 void draw_avx2(SourceKey key, const Index* nodes, int64_t count, uint64_t* words) {
  constexpr int kLanes = 4;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256i drawn = draw_lanes(key, load_avx2(nodes + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + i), drawn);
  }
  draw_baseline(key, nodes + i, count - i, words + i);
}

template <class Index>
LG_TARGET_AVX512 void draw_avx512(SourceKey key, const Index* nodes, int64_t count,
                                  uint64_t* words) {
  constexpr int kLanes = 8;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm512_storeu_si512(words + i, draw_lanes(key, load_avx512(nodes + i)));
  }
  const __mmask8 rest = __mmask8((1 << (count - i)) - 1);
  if (rest) {
    _mm512_mask_storeu_epi64(words + i, rest, draw_lanes(key, load_avx512(rest, nodes + i)));
  }
}

#endif

}  // namespace

template <class Index>
void draw_sources(const SourceKey& key, const Index* nodes, int64_t count, uint64_t* words) {
#ifdef LG_X86
  switch (used_isa()) {
    case Isa::kAvx512:
      return draw_avx512(key, nodes, count, words);
    case Isa::kAvx2:
      return draw_avx2(key, nodes, count, words);
    case Isa::kBaseline:
      break;
  }
#endif
  draw_baseline(key, nodes, count, words);
}

template void draw_sources(const SourceKey&, const int32_t*, int64_t, uint64_t*);
template void draw_sources(const SourceKey&, const int64_t*, int64_t, uint64_t*);

}  // namespace lg
