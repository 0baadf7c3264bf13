// isa.h: which vector instructions this machine has, and which of them the kernels use.
//
// One build runs everywhere: leaf functions are compiled for several instruction sets, and a kernel
// asks used_isa() which one to call. All of them give equal results.
#pragma once

// Functions marked so may use these instructions; nothing else in their file does. x86-64-v3 and
// -v4 are the levels that compilers, Linux distributions and AMD and Intel agree on.
#if defined(__x86_64__) && defined(__GNUC__)
#define LG_X86 1
#define LG_TARGET_AVX2 __attribute__((target("avx2,bmi,bmi2,fma,lzcnt,popcnt")))
#define LG_TARGET_AVX512                                         \
  __attribute__((                                                \
      target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2," \
             "bmi,bmi2,fma,lzcnt,popcnt")))
#endif

namespace lg {

enum class Isa { kBaseline = 0, kAvx2 = 1, kAvx512 = 2 };

Isa best_isa();  // of this machine; kBaseline where it is no x86-64
Isa used_isa();  // best_isa(), unless set_isa() said otherwise

// For tests and benchmarks. Throws SamplerConfigError if the machine lacks it.
void set_isa(Isa isa);

}  // namespace lg
