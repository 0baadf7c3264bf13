// types.h: CUDA's vector types, aligned as on a device, and the variables that name a thread.
#pragma once

#include <cstdint>

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using longlong = long long;
using ulonglong = unsigned long long;

#define LG_VECTORS(type)                                                                 \
  struct alignas(2 * sizeof(type)) type##2 { type x, y; };                               \
  struct type##3 { type x, y, z; };                                                      \
  struct alignas(sizeof(type) < 4 ? 4 * sizeof(type) : 16) type##4 { type x, y, z, w; }; \
  inline type##2 make_##type##2(type x, type y) { return {x, y}; }                       \
  inline type##3 make_##type##3(type x, type y, type z) { return {x, y, z}; }            \
  inline type##4 make_##type##4(type x, type y, type z, type w) { return {x, y, z, w}; }
LG_VECTORS(char)
LG_VECTORS(uchar)
LG_VECTORS(short)
LG_VECTORS(ushort)
LG_VECTORS(int)
LG_VECTORS(uint)
LG_VECTORS(longlong)
LG_VECTORS(ulonglong)
LG_VECTORS(float)
LG_VECTORS(double)
#undef LG_VECTORS

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

constexpr int warpSize = 32;
inline uint3 threadIdx{}, blockIdx{};  // of the running thread
inline dim3 blockDim, gridDim;         // of the running launch
