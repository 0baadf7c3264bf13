// vectors.h: the vector code of this folder, one version an instruction set.
#pragma once

#include <cstdint>

#include "sample_neighbors/uniform_positions.h"

namespace lg {

constexpr uint32_t kMaxVectorBlocks = 4096;
constexpr int64_t kMaxVectorFanout = 64;

// draw_words(), for up to kMaxVectorBlocks.
void draw_words_avx2(const NodeDraws* draws, int count, uint32_t num_blocks, uint32_t* words);
void draw_words_avx512(const NodeDraws* draws, int count, uint32_t num_blocks, uint32_t* words);

// UniformPositions::choose(), for fanouts from 1 to kMaxVectorFanout.
int64_t* uniform_positions_avx2(const UniformChunk& chunk, int64_t* position);
int64_t* uniform_positions_avx512(const UniformChunk& chunk, int64_t* position);

}  // namespace lg
