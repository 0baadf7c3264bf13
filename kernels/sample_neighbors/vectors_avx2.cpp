// The vector code of this folder, for AVX2.
#if defined(__x86_64__) && defined(__GNUC__)
#define LG_LANES 256
// clang-format off
// Plain headers come first, so that no function of theirs gets these instructions.
#include "sample_neighbors/vectors.h"
#include "sample_neighbors/draw_words_lanes.h"
#include "sample_neighbors/uniform_positions_lanes.h"
// clang-format on

namespace lg {

void draw_words_avx2(const NodeDraws* draws, int count, uint32_t num_blocks, uint32_t* words) {
  draw_words_lanes(draws, count, num_blocks, words);
}

int64_t* uniform_positions_avx2(const UniformChunk& chunk, int64_t* position) {
  return uniform_positions_lanes(chunk, position);
}

}  // namespace lg
#endif
