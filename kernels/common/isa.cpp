#include "common/isa.h"

#include <atomic>

#include "common/error.h"

namespace lg {
namespace {

Isa detect() {
#ifdef LG_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? Isa::kAvx512 : avx2 ? Isa::kAvx2 : Isa::kBaseline;
#else
  return Isa::kBaseline;
#endif
}

std::atomic<Isa>& used() {
  static std::atomic<Isa> isa{best_isa()};
  return isa;
}

}  // namespace

Isa best_isa() {
  static const Isa isa = detect();
  return isa;
}

Isa used_isa() { return used().load(std::memory_order_relaxed); }

void set_isa(Isa isa) {
  if (isa < Isa::kBaseline || isa > best_isa()) {
    fail<SamplerConfigError>("instruction set ", int(isa),
                             " is not one of this machine, which has 0 to ", int(best_isa()), ".");
  }
  used().store(isa, std::memory_order_relaxed);
}

}  // namespace lg
