#include "sample_neighbors/draw_words.h"

#include "common/isa.h"
#include "sample_neighbors/vectors.h"

namespace lg {

void draw_words(const NodeDraws* draws, int count, uint32_t num_blocks, uint32_t* words) {
#ifdef LG_X86
  if (num_blocks <= kMaxVectorBlocks) {
    if (used_isa() == Isa::kAvx512) return draw_words_avx512(draws, count, num_blocks, words);
    if (used_isa() == Isa::kAvx2) return draw_words_avx2(draws, count, num_blocks, words);
  }
#endif
  for (int i = 0; i < count; ++i) {
    for (uint32_t block = 0; block < num_blocks; ++block, words += 4) {
      const Words4 drawn = draw_block(draws[i], block, /*attempt=*/0);
      words[0] = drawn.x;
      words[1] = drawn.y;
      words[2] = drawn.z;
      words[3] = drawn.w;
    }
  }
}

}  // namespace lg
