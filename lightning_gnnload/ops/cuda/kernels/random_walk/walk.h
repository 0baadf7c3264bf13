// walk.h: one random walk by one thread of a device; what it draws, walk_settings.h says.
#pragma once

#include "common/cuda/adjacency.h"
#include "random_walk/walk_settings.h"

namespace lg {

// Calls visit(t, node) for each node that step t of walk `number` of `start` reaches, in the order of
// steps. draws: the start's.
template <class Index, class Visit>
__device__ void walk(const Adjacency<Index>& graph, const WalkSettings& settings,
                     const NodeDraws& draws, int64_t start, int64_t number, const Visit& visit) {
  const uint32_t first_block = uint32_t(number * settings.blocks_per_walk());
  int64_t from = start;
  Words4 words{};
  for (int64_t t = 0; t < settings.length; ++t) {
    const bool is_odd = t & 1;
    const uint32_t block = first_block + uint32_t(t / 2), word = 4 * block + 2 * is_odd;
    const uint32_t degree = uint32_t(graph.degree(from));
    if (degree == 0) return;
    if (!is_odd) words = draw_block(draws, block, 0);
    const int64_t node =
        graph.list(from)[draw_below(draws, word, degree, is_odd ? words.z : words.x)];
    visit(t, node);
    const uint32_t fate = is_odd ? words.w : words.y;
    if (fate < settings.end_below) return;
    from = fate < settings.restart_below ? start : node;
  }
}

}  // namespace lg
