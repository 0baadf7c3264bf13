// walk.h: one random walk by one thread of a device; what it draws, walk_settings.h says.
#pragma once

#include "common/cuda/adjacency.h"
#include "random_walk/walk_lists.h"
#include "random_walk/walk_settings.h"

namespace lg {

// Calls visit(t, node, ends_round) for each node that step t of walk `number` of `start` reaches, in the
// order of steps. draws: the start's. tables: alias tables, which lie as the lists do whose edges they
// are of, and are of the runs in `lists`; read where settings.table is given.
template <class Index, class Offset, class Visit>
__device__ void walk(const Adjacency<Index>& graph, const RunLists<Offset>& lists,
                     const Adjacency<AliasEntry>& tables, const WalkSettings& settings,
                     const NodeDraws& draws, int64_t start, int64_t number, const Visit& visit) {
  const uint32_t first_block = uint32_t(number * settings.blocks_per_walk());
  int64_t from = start, step_of_round = 0;
  Words4 words{};
  for (int64_t t = 0; t < settings.length; ++t) {
    const bool is_second = settings.is_second(t);
    const uint32_t block = first_block + uint32_t(settings.block_of(t));
    const int64_t run = lists.steps[step_of_round](from);
    const int64_t begin = int64_t(lists.ptr[run]);
    const uint32_t degree = uint32_t(lists.ptr[run + 1] - lists.ptr[run]);
    if (degree == 0) return;
    if (!is_second) words = draw_block(draws, block, 0);
    const int64_t run_of_list =
        begin - graph.start(from);  // where the run begins in the node's list
    uint32_t neighbor =
        draw_below(draws, 4 * block + 2 * is_second, degree, is_second ? words.z : words.x);
    if (settings.table != nullptr) {
      neighbor = resolve(tables.list(from)[run_of_list + neighbor], neighbor, words.z);
      if (neighbor == kNobody) return;
    }
    const int64_t node = graph.list(from)[run_of_list + neighbor];
    const bool ends_round = ++step_of_round == lists.round;
    visit(t, node, ends_round);
    from = node;
    if (!ends_round) continue;
    step_of_round = 0;
    const uint32_t fate = is_second ? words.w : words.y;
    if (fate < settings.end_below) return;
    if (fate < settings.restart_below) from = start;
  }
}

}  // namespace lg
