#include "sample_labor/sum_above.h"

#include "common/isa.h"

namespace lg {
namespace {

constexpr int kLanes = 8;

double total(const double (&lane)[kLanes]) {
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

// Adding zero changes no sum, so a term that does not count may be added as zero.
__attribute__((always_inline)) inline SumAbove sum_lanes_above(const double* values, int64_t count,
                                                               double bound) {
  double lane[kLanes] = {};
  int64_t above[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      lane[k] += values[i + k] > bound ? values[i + k] : 0.0;
      above[k] += values[i + k] > bound;
    }
  }
  int64_t num_above = 0;
  for (int k = 0; i + k < count; ++k) {
    lane[k] += values[i + k] > bound ? values[i + k] : 0.0;
    num_above += values[i + k] > bound;
  }
  for (int64_t n : above) num_above += n;
  return {total(lane), num_above};
}

SumAbove sum_above_baseline(const double* values, int64_t count, double bound) {
  return sum_lanes_above(values, count, bound);
}

#ifdef LG_X86
LG_TARGET_AVX2 SumAbove sum_above_avx2(const double* values, int64_t count, double bound) {
  return sum_lanes_above(values, count, bound);
}
LG_TARGET_AVX512 SumAbove sum_above_avx512(const double* values, int64_t count, double bound) {
  return sum_lanes_above(values, count, bound);
}
#endif

}  // namespace

SumAbove sum_above(const double* values, int64_t count, double bound) {
#ifdef LG_X86
  if (used_isa() == Isa::kAvx512) return sum_above_avx512(values, count, bound);
  if (used_isa() == Isa::kAvx2) return sum_above_avx2(values, count, bound);
#endif
  return sum_above_baseline(values, count, bound);
}

double sum_inverses_up_to_one(const double* values, int64_t count) {
  double lane[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) lane[i % kLanes] += values[i] <= 1 ? 1.0 : 1.0 / values[i];
  return total(lane);
}

}  // namespace lg
