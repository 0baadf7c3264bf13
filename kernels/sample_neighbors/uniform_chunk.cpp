#include "sample_neighbors/uniform_chunk.h"

#include "common/isa.h"
#include "sample_neighbors/draw_words.h"
#include "sample_neighbors/picked_set.h"
#include "sample_neighbors/sample_uniform.h"

namespace lg {
namespace {

void choose(const NodeDraws& draws, const uint32_t* words, uint32_t degree, uint32_t fanout,
            bool replace, LargePickedSet& large_picked, uint32_t* pick) {
  if (replace) {
    sample_with_replacement(draws, words, degree, fanout, pick);
  } else if (fanout <= SmallPickedSet::kMaxSize) {
    SmallPickedSet picked;
    sample_without_replacement(draws, words, degree, fanout, picked, pick);
  } else {
    large_picked.clear(fanout);
    sample_without_replacement(draws, words, degree, fanout, large_picked, pick);
  }
}

}  // namespace

void uniform_positions(const UniformChunk& chunk, uint32_t* words, uint32_t* pick,
                       LargePickedSet& picked, int64_t* position) {
#ifdef LG_X86
  if (chunk.fanout <= kMaxVectorFanout) {
    if (used_isa() == Isa::kAvx512) return uniform_positions_avx512(chunk, words, position);
    if (used_isa() == Isa::kAvx2) return uniform_positions_avx2(chunk, words, position);
  }
#endif
  NodeDraws draws[kMaxUniformChunk];
  int num_drawn = 0;
  for (int i = 0; i < chunk.size; ++i) {
    draws[num_drawn] = node_draws(chunk.key, chunk.step, chunk.hop, chunk.node[i]);
    num_drawn += chunk.is_drawn(i);
  }
  draw_words(draws, num_drawn, chunk.num_blocks(), words);
  const NodeDraws* draw = draws;
  for (int i = 0; i < chunk.size; ++i) {
    const int64_t count = chunk.count(i);
    if (chunk.is_drawn(i)) {
      choose(*draw++, words, uint32_t(chunk.degree[i]), chunk.fanout, chunk.replace, picked, pick);
      words += 4 * chunk.num_blocks();
      for (int64_t j = 0; j < count; ++j) position[j] = chunk.start[i] + pick[j];
    } else {
      for (int64_t j = 0; j < count; ++j) position[j] = chunk.start[i] + j;
    }
    position += count;
  }
}

}  // namespace lg
