// scan.cu: one step of a sum across blocks, at a moment that a test sets up.
#include "common/cuda/kernel.h"
#include "common/cuda/scan.h"

namespace lg {

// Each block takes one tile, of which every thread has one item of value 1.
__global__ void take_tile(int64_t* tiles, int64_t* before, Word* words) {
  TileScan scan(words);
  const int64_t tile = scan.next_tile();
  const BlockSum sum = block_sum(1);
  const int64_t of_tile = scan.before(tile, sum.total);
  if (threadIdx.x == 0) {
    tiles[blockIdx.x] = tile;
    before[blockIdx.x] = of_tile;
  }
}

}  // namespace lg

LG_INSTANTIATE(take_tile)
