// draw_words.h: the random words of many nodes at once, with vector instructions.
//
//   in   draws[count]                    the nodes' draws, all of one key and step
//   out  words[count * 4 * num_blocks]   per node, first attempts of draws 0 to 4 * num_blocks - 1
#pragma once

#include "common/draw.h"

namespace lg {

void draw_words(const NodeDraws* draws, int count, uint32_t num_blocks, uint32_t* words);

}  // namespace lg
