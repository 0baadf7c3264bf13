#include "sample_neighbors/draw_words.h"

#include "common/vector_clones.h"

namespace lg {
namespace {

// One block a lane. Rounds loop over all lanes without a branch, so that they become vector code.
constexpr int kLanes = 16;

}  // namespace

LG_VECTOR_CLONES
void draw_words(const NodeDraws* draws, int count, uint32_t num_blocks, uint32_t* words) {
  uint32_t x[kLanes] = {}, y[kLanes] = {}, z[kLanes] = {}, w[kLanes] = {};
  uint32_t block = 0;
  for (int64_t left = int64_t(count) * num_blocks; left > 0; left -= kLanes) {
    const int used = int(left < kLanes ? left : kLanes);
    uint32_t key0 = draws->key0, key1 = draws->key1;
    for (int lane = 0; lane < used; ++lane) {
      x[lane] = draws->node_low;
      y[lane] = draws->node_high_hop;
      z[lane] = draws->step;
      w[lane] = block;
      if (++block == num_blocks) {
        block = 0;
        ++draws;
      }
    }
    for (int round = 0; round < kPhiloxRounds; ++round) {  // as philox(), lane by lane
      for (int lane = 0; lane < kLanes; ++lane) {
        const uint64_t product0 = uint64_t(kPhiloxMultiplier0) * x[lane];
        const uint64_t product1 = uint64_t(kPhiloxMultiplier1) * z[lane];
        x[lane] = uint32_t(product1 >> 32) ^ y[lane] ^ key0;
        y[lane] = uint32_t(product1);
        z[lane] = uint32_t(product0 >> 32) ^ w[lane] ^ key1;
        w[lane] = uint32_t(product0);
      }
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    for (int lane = 0; lane < used; ++lane, words += 4) {
      words[0] = x[lane];
      words[1] = y[lane];
      words[2] = z[lane];
      words[3] = w[lane];
    }
  }
}

}  // namespace lg
