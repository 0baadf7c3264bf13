// warps.cu: small kernels, right and wrong ones, that show what the emulator does and finds.
#include "common/cuda/kernel.h"

namespace lg {

// The sum over each warp, by shuffles.
template <class Number>
__global__ void sum_warps(const Number* __restrict__ values, Number* __restrict__ sums) {
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  Number sum = values[index];
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
  if (threadIdx.x % 32 == 0) sums[index / 32] = sum;
}

// The sums over each group of `width` lanes up to the own lane.
__global__ void scan_groups(const int64_t* values, int64_t* sums, int32_t width) {
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  int64_t sum = values[index];
  for (int delta = 1; delta < width; delta *= 2) {
    const int64_t before = __shfl_up_sync(0xffffffffu, sum, delta, width);
    if (int(threadIdx.x % width) >= delta) sum += before;
  }
  sums[index] = sum;
}

// For each value, how many lanes of its half warp hold it; halves go their own ways.
__global__ void count_equal(const int32_t* values, int32_t* counts) {
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const unsigned half = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  if (threadIdx.x % 32 < 16) __syncwarp(half);
  counts[index] = __popc(__match_any_sync(half, values[index]));
}

// The values of each block in reverse order, through shared memory of either kind.
template <class Number>
__global__ void reverse(const Number* values, Number* reversed, int32_t with_barrier) {
  __shared__ Number kept[1024];
  LG_DYNAMIC_SHARED(Number, also_kept);
  const int64_t first = int64_t(blockIdx.x) * blockDim.x;
  kept[threadIdx.x] = values[first + threadIdx.x];
  also_kept[threadIdx.x] = 1;
  if (with_barrier) __syncthreads();
  const unsigned other = blockDim.x - 1 - threadIdx.x;
  reversed[first + threadIdx.x] = also_kept[other] == 1 ? kept[other] : Number(0);
}

// Twice the same block: what the first one writes, the second one may not find.
__global__ void leave_behind(int32_t* found) {
  __shared__ int32_t kept;
  LG_DYNAMIC_SHARED(int32_t, also_kept);
  if (threadIdx.x == 0) {
    found[2 * blockIdx.x] = kept;
    found[2 * blockIdx.x + 1] = *also_kept;
    kept = *also_kept = 7;
  }
}

// A histogram, and the order in which blocks came.
__global__ void count_values(const int32_t* values, int32_t* counts, uint64_t* ticket,
                             int64_t* order) {
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  atomicAdd(&counts[values[index]], 1);
  const int negatives = __syncthreads_count(values[index] < 0);
  if (threadIdx.x == 0) {
    order[blockIdx.x] =
        int64_t(atomicAdd(reinterpret_cast<unsigned long long*>(ticket), 1ull)) + negatives;
  }
}

// The least value; the wrong way, each decides by what it saw, and stores.
__global__ void find_least(const int32_t* values, int32_t* least, int32_t by_store) {
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (__ldcg(least) <= values[index]) return;
  if (by_store) {
    *least = values[index];
  } else {
    atomicMin(least, values[index]);
  }
}

__global__ void write_outside(int32_t* out, int32_t place) {
  if (threadIdx.x == 0) out[place] = 1;
}

__global__ void lane_outside_mask(int32_t* out) {
  out[threadIdx.x] = __any_sync(0x0000ffffu, threadIdx.x == 3);
}

__global__ void early_end(int32_t* out) {
  if (threadIdx.x == 7) return;
  out[threadIdx.x] = __any_sync(0xffffffffu, threadIdx.x == 3);
}

__global__ void other_collective(int32_t* out) {
  if (threadIdx.x % 2) {
    out[threadIdx.x] = __any_sync(0xffffffffu, 1);
  } else {
    out[threadIdx.x] = __all_sync(0xffffffffu, 1);
  }
}

__global__ void other_mask(int32_t* out) {
  out[threadIdx.x] = __any_sync(threadIdx.x % 2 ? 0xffffffffu : 0x55555557u, 1);
}

__global__ void divergent_barrier(int32_t* out) {
  if (threadIdx.x < 32) __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void other_barrier(int32_t* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    out[threadIdx.x] = __syncthreads_or(1);
  }
}

__global__ void outside_shared(int32_t* out) {
  LG_DYNAMIC_SHARED(int32_t, kept);
  kept[threadIdx.x + 1] = 1;
  out[threadIdx.x] = 1;
}

__global__ void deep_stack(int32_t* out) {
  volatile unsigned char deep[80000];
  for (unsigned index = 0; index < sizeof deep; ++index) deep[index] = 1;
  if (threadIdx.x == 40) out[0] = deep[79999];
}

}  // namespace lg

LG_INSTANTIATE(sum_warps<int32_t>)
LG_INSTANTIATE(sum_warps<int64_t>)
LG_INSTANTIATE(sum_warps<float>)
LG_INSTANTIATE(scan_groups)
LG_INSTANTIATE(count_equal)
LG_INSTANTIATE(reverse<int32_t>)
LG_INSTANTIATE(reverse<double>)
LG_INSTANTIATE(leave_behind)
LG_INSTANTIATE(count_values)
LG_INSTANTIATE(find_least)
LG_INSTANTIATE(write_outside)
LG_INSTANTIATE(lane_outside_mask)
LG_INSTANTIATE(early_end)
LG_INSTANTIATE(other_collective)
LG_INSTANTIATE(other_mask)
LG_INSTANTIATE(divergent_barrier)
LG_INSTANTIATE(other_barrier)
LG_INSTANTIATE(outside_shared)
LG_INSTANTIATE(deep_stack)
