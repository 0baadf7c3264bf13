#include "sample_neighbors/uniform_positions.h"

#include "common/isa.h"
#include "common/workspace.h"
#include "sample_neighbors/draw_words.h"
#include "sample_neighbors/sample_uniform.h"
#include "sample_neighbors/vectors.h"

namespace lg {

int64_t* UniformPositions::choose(const UniformChunk& chunk, int64_t* position) {
  if (chunk.fanout() == kAllNeighbors) {
    for (int i = 0; i < chunk.size; ++i) {
      for (int64_t j = 0; j < chunk.count[i]; ++j) *position++ = chunk.start[i] + j;
    }
    return position;
  }
#ifdef LG_X86
  if (chunk.fanout() <= kMaxVectorFanout) {
    if (used_isa() == Isa::kAvx512) return uniform_positions_avx512(chunk, position);
    if (used_isa() == Isa::kAvx2) return uniform_positions_avx2(chunk, position);
  }
#endif
  return choose_portable(chunk, position);
}

int64_t* UniformPositions::choose_portable(const UniformChunk& chunk, int64_t* position) {
  NodeDraws draws[kMaxChunk];
  for (int k = 0; k < chunk.num_drawn; ++k) draws[k] = chunk.draws(k);
  const int64_t node_words = 4 * chunk.num_blocks();
  const uint32_t* words = reserve(words_, chunk.num_drawn * node_words);
  draw_words(draws, chunk.num_drawn, chunk.num_blocks(), words_.data());
  for (int i = 0, k = 0; i < chunk.size; ++i) {
    const int64_t count = chunk.count[i];
    if (chunk.is_drawn[i]) {
      draw(chunk, k++, words);
      words += node_words;
      for (int64_t j = 0; j < count; ++j) position[j] = chunk.start[i] + pick_[j];
    } else {
      for (int64_t j = 0; j < count; ++j) position[j] = chunk.start[i] + j;
    }
    position += count;
  }
  return position;
}

void UniformPositions::draw(const UniformChunk& chunk, int k, const uint32_t* words) {
  const NodeDraws draws = chunk.draws(k);
  const uint32_t fanout = uint32_t(chunk.fanout()), degree = chunk.degree[k];
  uint32_t* pick = reserve(pick_, fanout);
  if (chunk.replace()) {
    sample_with_replacement(draws, words, degree, fanout, pick);
  } else if (fanout <= SmallPickedSet::kMaxSize) {
    SmallPickedSet picked;
    sample_without_replacement(draws, words, degree, fanout, picked, pick);
  } else {
    large_picked_.clear(fanout);
    sample_without_replacement(draws, words, degree, fanout, large_picked_, pick);
  }
}

}  // namespace lg
