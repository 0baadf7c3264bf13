// picks.cu: a kernel that tells what it was launched with.
#include "common/cuda/kernel.h"

namespace lg {

template <class Index>
struct Lists {
  const Index* hot;
  uint32_t count;
};

struct Draws {
  uint32_t epoch;
  Lists<float> weights;
  int32_t hop;
};

// seen [13]: the grid, and each parameter as an integer.
template <class Index>
__global__ void pick(const Index* indices, Index* out, int32_t fanout, uint64_t seed, float scale,
                     int64_t num, Draws draws, int64_t* seen) {
  if (blockIdx.x || threadIdx.x) return;
  const int64_t values[] = {gridDim.x,
                            blockDim.x,
                            sizeof(Index),
                            int64_t(indices),
                            int64_t(out),
                            fanout,
                            int64_t(seed),
                            int64_t(scale * 4),
                            num,
                            draws.epoch,
                            int64_t(draws.weights.hot),
                            draws.weights.count,
                            draws.hop};
  for (int32_t i = 0; i < 13; ++i) seen[i] = values[i];
}

__global__ void clear(uint32_t* words) {
  if (!blockIdx.x && !threadIdx.x) words[0] = 0;
}

}  // namespace lg

LG_INSTANTIATE(pick<int32_t>)
LG_INSTANTIATE(pick<int64_t>)
LG_INSTANTIATE(clear)
