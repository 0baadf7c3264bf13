// philox.h: the one source of randomness, Philox4x32-10, a pure function of a counter and a key.
//
// Shared by CPU and CUDA: integer arithmetic only, so both make the same draws.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11.
#pragma once

#ifdef __CUDACC__
#define LG_HD __host__ __device__ __forceinline__
#else
#define LG_HD inline
#endif

#ifndef __CUDACC_RTC__  // NVRTC has no host headers
#include <cstdint>
#else
using int32_t = int;
using int64_t = long long;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
#endif

namespace lg {

struct Words4 {
  uint32_t x, y, z, w;
};

constexpr int kPhiloxRounds = 10;
constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u;
constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85u;

LG_HD Words4 philox(Words4 counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t(kPhiloxMultiplier0) * counter.x;
    const uint64_t product1 = uint64_t(kPhiloxMultiplier1) * counter.z;
    counter = {uint32_t(product1 >> 32) ^ counter.y ^ key0, uint32_t(product1),
               uint32_t(product0 >> 32) ^ counter.w ^ key1, uint32_t(product0)};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return counter;
}

}  // namespace lg
