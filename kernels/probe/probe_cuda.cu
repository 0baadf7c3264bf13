// probe_cuda.cu: what a device can do at most, to set kernels' figures beside: reads and minima at random
// places of a table, and launches of a kernel that does nothing. ops/cuda/probe.py times them.
#include "common/cuda/kernel.h"
#include "common/cuda/state.h"

namespace lg {

constexpr int kUnderWay = 8;  // reads of a thread at a time

// A place in a table of fewer than 2^32 words: the finaliser of MurmurHash3, scaled without a division.
__device__ inline uint64_t random_place(uint64_t number, uint64_t num_words) {
  number ^= number >> 33;
  number *= 0xff51afd7ed558ccdull;
  number ^= number >> 33;
  number *= 0xc4ceb9fe1a85ec53ull;
  number ^= number >> 33;
  return ((number >> 32) * num_words) >> 32;
}

__global__ void do_nothing(int64_t count) { (void)count; }

//   in   table[num_words]
//   out  sums[threads of the grid]   of num_turns * kUnderWay words each, so that no read is left out
__global__ void read_random(const uint32_t* table, uint64_t num_words, int64_t num_turns,
                            uint32_t* sums) {
  const uint64_t first = uint64_t(thread_of_grid()) * uint64_t(num_turns) * kUnderWay;
  uint32_t sum = 0;
  for (int64_t turn = 0; turn < num_turns; ++turn) {
    uint32_t words[kUnderWay];
    for (int k = 0; k < kUnderWay; ++k) {
      words[k] = table[random_place(first + uint64_t(turn) * kUnderWay + k, num_words)];
    }
    for (int k = 0; k < kUnderWay; ++k) sum += words[k];
  }
  sums[thread_of_grid()] = sum;
}

//   io   table[num_words]   each the least of the numbers that came to its place
__global__ void lower_random(uint32_t* table, uint64_t num_words, int64_t num_turns) {
  const uint64_t first = uint64_t(thread_of_grid()) * uint64_t(num_turns);
  for (int64_t turn = 0; turn < num_turns; ++turn) {
    const uint64_t number = first + uint64_t(turn);
    atomicMin(table + random_place(number, num_words), uint32_t(number));
  }
}

}  // namespace lg

LG_INSTANTIATE(do_nothing)
LG_INSTANTIATE(read_random)
LG_INSTANTIATE(lower_random)
