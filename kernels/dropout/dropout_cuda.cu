// dropout_cuda.cu: dropout.h on a device, a thread a Philox block of eight elements: two in each
// quarter of a chunk, so that half a warp reads and writes 32 elements side by side.
//
// Here a block has a byte of bits: bit 2 k + h is for its element of word k, half h.
#include "common/cuda/kernel.h"
#include "common/cuda/state.h"
#include "common/floats.h"
#include "dropout/dropout.h"

namespace lg {

template <class T>
__device__ inline void drop_element(const T* input, T* out, int64_t i, double scale, bool keep) {
  narrow(keep ? widen(input[i]) * Wide<T>(scale) : Wide<T>(0), out + i);
}

__device__ inline int64_t element_of(int64_t block, int word, int half) {
  return block / kChunkBlocks * kDropoutChunk + 32 * word + 2 * (block % kChunkBlocks) + half;
}

//   in   input[count]
//   out  out[count]
//   out  bits[num_blocks]   null: not wanted
template <class T>
__global__ void drop_by_key(const T* input, T* out, int64_t count, int64_t num_blocks,
                            DropoutKey key, uint32_t threshold, double scale, int32_t relu,
                            uint8_t* bits) {
  for (int64_t block = thread_of_grid(); block < num_blocks; block += threads_of_grid()) {
    const Words4 drawn = dropout_words(key, uint64_t(block));
    const uint32_t words[kBlockWords] = {drawn.x, drawn.y, drawn.z, drawn.w};
    uint32_t kept = 0;
    for (int k = 0; k < kBlockWords; ++k) {
      for (int half = 0; half < 2; ++half) {
        const int64_t i = element_of(block, k, half);
        if (i >= count) continue;
        bool keep = (words[k] >> 16 * half & 0xffff) >= threshold;
        if (relu != 0) keep = keep && !(widen(input[i]) <= 0);
        kept |= uint32_t(keep) << (2 * k + half);
        drop_element(input, out, i, scale, keep);
      }
    }
    if (bits != nullptr) bits[block] = uint8_t(kept);
  }
}

template <class T>
__global__ void drop_by_bits(const T* input, T* out, int64_t count, int64_t num_blocks,
                             double scale, const uint8_t* bits) {
  for (int64_t block = thread_of_grid(); block < num_blocks; block += threads_of_grid()) {
    const uint32_t kept = bits[block];
    for (int k = 0; k < kBlockWords; ++k) {
      for (int half = 0; half < 2; ++half) {
        const int64_t i = element_of(block, k, half);
        if (i < count) drop_element(input, out, i, scale, kept >> (2 * k + half) & 1);
      }
    }
  }
}

}  // namespace lg

LG_INSTANTIATE(drop_by_key<float>)
LG_INSTANTIATE(drop_by_key<double>)
LG_INSTANTIATE(drop_by_key<lg::Float16>)
LG_INSTANTIATE(drop_by_key<lg::BFloat16>)
LG_INSTANTIATE(drop_by_bits<float>)
LG_INSTANTIATE(drop_by_bits<double>)
LG_INSTANTIATE(drop_by_bits<lg::Float16>)
LG_INSTANTIATE(drop_by_bits<lg::BFloat16>)
