// draw_sources.h: the source draws (common/draw.h) of many nodes at once, with vector instructions.
#pragma once

#include "common/draw.h"

namespace lg {

// What the source draws of one hop have in common.
struct SourceKey {
  StreamKey stream;
  uint32_t step, hop;
};

//   in   nodes[count]
//   out  words[count]   source_draw() of each
template <class Index>
void draw_sources(const SourceKey& key, const Index* nodes, int64_t count, uint64_t* words);

}  // namespace lg
