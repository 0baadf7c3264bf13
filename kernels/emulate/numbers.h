// numbers.h: CUDA's integer and rounding functions.
#pragma once

#include <math.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(b) < T(a) ? T(b) : T(a);
}

template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(a) < T(b) ? T(b) : T(a);
}

inline int __popc(unsigned word) { return __builtin_popcount(word); }
inline int __popcll(unsigned long long word) { return __builtin_popcountll(word); }
inline int __ffs(int word) { return __builtin_ffs(word); }
inline int __ffsll(long long word) { return __builtin_ffsll(word); }
inline int __clz(int word) { return word ? __builtin_clz(unsigned(word)) : 32; }
inline int __clzll(long long word) { return word ? __builtin_clzll((unsigned long long)word) : 64; }

inline unsigned __brev(unsigned word) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (word >> bit & 1) << (31 - bit);
  return reversed;
}

inline unsigned long long __brevll(unsigned long long word) {
  return (unsigned long long)__brev(unsigned(word)) << 32 | __brev(unsigned(word >> 32));
}

inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline int __mulhi(int a, int b) { return int(int64_t(a) * b >> 32); }

__extension__ typedef unsigned __int128 emulated_uint128;
__extension__ typedef __int128 emulated_int128;
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(emulated_uint128(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
  return (long long)(emulated_int128(a) * b >> 64);
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}

#define LG_BITS(name, From, To)         \
  inline To name(From value) {          \
    To bits;                            \
    memcpy(&bits, &value, sizeof bits); \
    return bits;                        \
  }
LG_BITS(__float_as_int, float, int)
LG_BITS(__float_as_uint, float, unsigned)
LG_BITS(__int_as_float, int, float)
LG_BITS(__uint_as_float, unsigned, float)
LG_BITS(__double_as_longlong, double, long long)
LG_BITS(__longlong_as_double, long long, double)
#undef LG_BITS

// Rounded to nearest, and never fused: compiled with -ffp-contract=off.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __double2float_rn(double a) { return float(a); }
inline float __int2float_rn(int a) { return float(a); }
inline float __uint2float_rn(unsigned a) { return float(a); }
inline float __ll2float_rn(long long a) { return float(a); }
inline float __ull2float_rn(unsigned long long a) { return float(a); }
inline double __ll2double_rn(long long a) { return double(a); }
inline double __ull2double_rn(unsigned long long a) { return double(a); }
