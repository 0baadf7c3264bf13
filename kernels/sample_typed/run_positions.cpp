#include "sample_typed/run_positions.h"

#include "common/isa.h"
#include "common/philox_many.h"
#include "common/workspace.h"
#include "sample_neighbors/sample_uniform.h"

namespace lg {

void RunPositions::choose(const RunChunk& chunk, int64_t* position, int32_t* types) {
#ifdef LG_X86
  if (chunk.most_drawn <= kMaxVectorFanout) {
    if (used_isa() == Isa::kAvx512) return run_positions_avx512(chunk, position, types);
    if (used_isa() == Isa::kAvx2) return run_positions_avx2(chunk, position, types);
  }
#endif
  return choose_portable(chunk, position, types);
}

void RunPositions::choose_portable(const RunChunk& chunk, int64_t* position, int32_t* types) {
  for (int i = 0, k = 0; i < chunk.size; ++i) {
    const int64_t count = chunk.count[i];
    if (chunk.is_drawn[i]) {
      draw(chunk, k++);
      for (int64_t j = 0; j < count; ++j) position[j] = chunk.start[i] + pick_[size_t(j)];
    } else {
      for (int64_t j = 0; j < count; ++j) position[j] = chunk.start[i] + j;
    }
    position += count;
    if (types) types = std::fill_n(types, count, int32_t(chunk.type[i]));
  }
}

void RunPositions::draw(const RunChunk& chunk, int k) {
  const NodeDraws draws = chunk.draws(k);
  const uint32_t fanout = chunk.fanout[k], degree = chunk.degree[k];
  const uint32_t num_blocks = (fanout + 3) / 4;
  Words4* blocks = reserve(words_, num_blocks);
  for (uint32_t b = 0; b < num_blocks; ++b) blocks[b] = draw_counter(draws, b, /*attempt=*/0);
  philox_many(blocks, num_blocks, draws.key0, draws.key1);
  const uint32_t* words = &blocks->x;
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
