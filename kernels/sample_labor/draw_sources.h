// draw_sources.h: the source draws (common/draw.h) of many nodes at once, with vector instructions.
#pragma once

#include "common/batch.h"

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

constexpr int64_t kMaxSourceBlock = 256;

// Likewise, of at most kMaxSourceBlock nodes of a graph, in their names.
template <class Index, class Node>
void draw_sources_of(const Csc<Index>& graph, const SourceKey& key, const Node* nodes,
                     int64_t count, uint64_t* words) {
  if (!graph.names) return draw_sources(key, nodes, count, words);
  int64_t names[kMaxSourceBlock];
  for (int64_t i = 0; i < count; ++i) names[i] = graph.names[nodes[i]];
  draw_sources(key, names, count, words);
}

}  // namespace lg
