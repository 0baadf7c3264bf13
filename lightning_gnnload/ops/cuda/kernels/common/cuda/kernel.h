// kernel.h: what every .cu begins with. Device code is compiled by NVRTC when it is first launched
// (ops/cuda/), or, for tests on machines without a device, by the host's compiler (emulate/cuda.h).
//
//   LG_INSTANTIATE(name<types>)      one line for each kernel and types: what Python may launch
//   LG_DYNAMIC_SHARED(type, name)    the launch's dynamic shared memory, in a kernel's body
//
// Rules for device code, which both compilers have to take: parameters are pointers, numbers of 32 or
// 64 bits, and structures of these, whose members come first, all by value; a warp's collectives name the lanes that take part; a block is at most 1,024
// threads; atomics on 32 and 64 bits; no atomics on floating point, no arithmetic whose result could
// depend on the order of threads.
#pragma once

#include "common/philox.h"

#ifdef LG_EMULATE
#include "emulate/cuda.h"
#else
#define LG_INSTANTIATE(...)
#define LG_DYNAMIC_SHARED(type, name)                             \
  extern __shared__ __align__(16) unsigned char dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(dynamic_shared)
#endif
