// ramps.cu: kernels whose results tell which parameters they got, and when they ran.
#include "common/cuda/kernel.h"

namespace lg {

template <class Number>
struct Ramp {
  Number first;
  int32_t count;
  int64_t by;
};

// out[i] = (first + i * by) * scale + more[i], for one thread to write.
template <class Number>
__global__ void write_ramp(Number* out, Ramp<Number> ramp, double scale, const Number* more) {
  if (blockIdx.x || threadIdx.x) return;
  for (int32_t i = 0; i < ramp.count; ++i) {
    out[i] = Number(double(ramp.first + i * ramp.by) * scale) + (more ? more[i] : Number(0));
  }
}

// Each block turns its words around through shared memory.
__global__ void turn(uint64_t* words, int32_t count) {
  LG_DYNAMIC_SHARED(uint64_t, shared);
  for (int32_t i = int32_t(threadIdx.x); i < count; i += int32_t(blockDim.x)) shared[i] = words[i];
  __syncthreads();
  for (int32_t i = int32_t(threadIdx.x); i < count; i += int32_t(blockDim.x)) {
    words[i] = shared[count - 1 - i];
  }
}

// Shared memory that it was not given.
__global__ void overrun(uint64_t* words) {
  LG_DYNAMIC_SHARED(uint64_t, shared);
  shared[0] = words[0];
}

}  // namespace lg

LG_INSTANTIATE(write_ramp<int32_t>)
LG_INSTANTIATE(write_ramp<int64_t>)
LG_INSTANTIATE(turn)
LG_INSTANTIATE(overrun)
