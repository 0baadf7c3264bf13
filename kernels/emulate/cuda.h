// cuda.h: what device code uses of CUDA, for the host's compiler; for tests on machines without a
// device. Include it through common/cuda/kernel.h.
//
// The kernels run as they are written, a thread a fiber (machine.h). Their results are a device's;
// their speed says nothing. What a device leaves undefined is random here, or an error:
//
//   threads of a block   run one at a time until one meets others or comes to an atomic operation, a
//                        fence or a load that names a cache; who goes on is drawn, so a race shows
//                        under some seed
//   blocks               one after another, in an order that is drawn: none may wait for another
//   shared memory        holds random bytes when a block begins
//   collectives          the lanes of the mask have to meet at the same one, with the same mask
//   barriers             every thread of the block has to come
#pragma once

#include "emulate/launch.h"
#include "emulate/machine.h"
#include "emulate/memory.h"
#include "emulate/numbers.h"
#include "emulate/types.h"
#include "emulate/warp.h"

#define __host__
#define __device__
#define __global__
#define __constant__ static const
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

#define LG_DYNAMIC_SHARED(type, name) \
  type* const name = reinterpret_cast<type*>(emulate::machine.dynamic_shared.data())
