// state.h: what the kernels of a batch tell each other, and the host when it is made: 64-bit words in
// device memory, all zero before. ops/cuda/launch/state.py deals them out.
#pragma once

#include "common/draw.h"

namespace lg {

using Word = unsigned long long;  // not uint64_t, which is another type to a host compiler

// The error word: what went wrong, and where first; 0: nothing. Codes as in ops/cuda/launch/state.py.
enum Error : uint32_t {
  kSeedOutOfRange = 1,
  kSeedRepeated = 2,
  kTooManyEdges = 3,
  kBadId = 4,
  kBadLocation = 5,
  kBadPosition = 6,
  kTooManyQueries = 7,
};
constexpr Word kPlaces = Word(1) << 56;

// The first place is kept, whatever the order of threads.
__device__ inline void report(Word* error, Error code, int64_t place) {
  atomicMax(error, (kPlaces - 1 - Word(place)) << 8 | Word(code));
}

// Whether a kernel before this one has failed: what it left must not index memory.
__device__ inline bool has_failed(const Word* error) { return __ldcg(error) != 0; }

// The same in all threads of a block, which call it: for kernels that report errors themselves, some
// of whose threads would see another block's, return, and be missed by the others.
__device__ inline bool block_has_failed(const Word* error) {
  return __syncthreads_or(has_failed(error)) != 0;
}

// The number of a thread in its grid, and their number.
__device__ inline int64_t thread_of_grid() {
  return int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t threads_of_grid() { return int64_t(gridDim.x) * blockDim.x; }

}  // namespace lg
