// walk_settings.h: how random walks go.
//
// Each in-neighbour is equally likely. After a step a 32-bit word decides what follows: below
// end_below the walk ends; else, below restart_below, its next step leaves from the start and not
// from the node it has reached. A walk also ends where there are no in-neighbours.
//
// Step t of walk w of a start node draws (common/draw.h, as that node at the given hop) from block
// w * ceil(length / 2) + t / 2: word 2 * (t & 1) chooses the in-neighbour, the next word decides
// what follows. So a walk depends on nothing but its start, its number and the key.
#pragma once

#include "common/draw.h"

namespace lg {

constexpr int64_t kMaxWalkBlocks = kMaxDraws / 4;  // num_walks * ceil(length / 2)

struct WalkSettings {
  int64_t length;                     // steps a walk, at least 1
  int64_t num_walks;                  // walks a start, at least 1
  uint64_t end_below, restart_below;  // end_below <= restart_below <= 2^32

  LG_HD int64_t blocks_per_walk() const { return (length + 1) / 2; }
};

}  // namespace lg
