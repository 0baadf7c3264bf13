#include "common/philox_many.h"

#include "common/isa.h"

namespace lg {
namespace {

// Fewer lanes, and the compiler unrolls the loops over them before it can make vector code of them.
constexpr int kLanes = 32;

inline __attribute__((always_inline)) void run(Words4* blocks, int64_t count, uint32_t key0,
                                               uint32_t key1) {
  uint32_t x[kLanes] = {}, y[kLanes] = {}, z[kLanes] = {}, w[kLanes] = {};
  for (; count > 0; count -= kLanes, blocks += kLanes) {
    const int used = int(count < kLanes ? count : kLanes);
    for (int lane = 0; lane < used; ++lane) {
      x[lane] = blocks[lane].x;
      y[lane] = blocks[lane].y;
      z[lane] = blocks[lane].z;
      w[lane] = blocks[lane].w;
    }
    uint32_t round_key0 = key0, round_key1 = key1;
    for (int round = 0; round < kPhiloxRounds; ++round) {  // as philox(), lane by lane
      for (int lane = 0; lane < kLanes; ++lane) {
        const uint64_t product0 = uint64_t(kPhiloxMultiplier0) * x[lane];
        const uint64_t product1 = uint64_t(kPhiloxMultiplier1) * z[lane];
        x[lane] = uint32_t(product1 >> 32) ^ y[lane] ^ round_key0;
        y[lane] = uint32_t(product1);
        z[lane] = uint32_t(product0 >> 32) ^ w[lane] ^ round_key1;
        w[lane] = uint32_t(product0);
      }
      round_key0 += kPhiloxWeyl0;
      round_key1 += kPhiloxWeyl1;
    }
    for (int lane = 0; lane < used; ++lane) blocks[lane] = {x[lane], y[lane], z[lane], w[lane]};
  }
}

#ifdef LG_X86
// AVX2 is measured no faster than the baseline, which has the one instruction that matters.
LG_TARGET_AVX512 void run_avx512(Words4* blocks, int64_t count, uint32_t key0, uint32_t key1) {
  run(blocks, count, key0, key1);
}
#endif

}  // namespace

void philox_many(Words4* blocks, int64_t count, uint32_t key0, uint32_t key1) {
#ifdef LG_X86
  if (used_isa() == Isa::kAvx512) return run_avx512(blocks, count, key0, key1);
#endif
  run(blocks, count, key0, key1);
}

}  // namespace lg
