// line.h: moving one cache line, with the vectors of each instruction set.
//
//   copy(to, from)    64 bytes, anywhere
//   stream(to, from)  the same, past the caches; `to` starts a line
//   flush()           after the last stream: only then may another thread be told of the bytes
#pragma once

#include <cstdint>
#include <cstring>

#include "common/isa.h"

#ifdef LG_X86
#include <immintrin.h>
#endif

namespace lg {

constexpr int64_t kLineBytes = 64;

#ifdef LG_X86

struct BaselineLine {  // SSE2, which every x86-64 has
  static void copy(uint8_t* to, const uint8_t* from) { std::memcpy(to, from, kLineBytes); }
  static void stream(uint8_t* to, const uint8_t* from) {
    for (int part = 0; part < 4; ++part) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to) + part,
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + part));
    }
  }
  static void flush() { _mm_sfence(); }
};

struct Avx2Line {
  LG_TARGET_AVX2 static void copy(uint8_t* to, const uint8_t* from) {
    for (int half = 0; half < 2; ++half) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + half,
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + half));
    }
  }
  LG_TARGET_AVX2 static void stream(uint8_t* to, const uint8_t* from) {
    for (int half = 0; half < 2; ++half) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to) + half,
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + half));
    }
  }
  static void flush() { _mm_sfence(); }
};

struct Avx512Line {
  LG_TARGET_AVX512 static void copy(uint8_t* to, const uint8_t* from) {
    _mm512_storeu_si512(to, _mm512_loadu_si512(from));
  }
  LG_TARGET_AVX512 static void stream(uint8_t* to, const uint8_t* from) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
  static void flush() { _mm_sfence(); }
};

#else

struct BaselineLine {
  static void copy(uint8_t* to, const uint8_t* from) { std::memcpy(to, from, kLineBytes); }
  static void stream(uint8_t* to, const uint8_t* from) { copy(to, from); }
  static void flush() {}
};

#endif

}  // namespace lg
