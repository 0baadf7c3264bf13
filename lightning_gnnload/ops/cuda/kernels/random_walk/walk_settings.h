// walk_settings.h: how random walks go.
//
// Each in-neighbour is equally likely, or as likely as its edge's weight says: then an alias table
// (common/alias.h) decides. After a step a 32-bit word decides what follows: below end_below the walk
// ends; else, below restart_below, its next step leaves from the start and not from the node it has
// reached. Between types (walk_lists.h) only what follows a whole round is so decided. A walk also ends
// where there are no in-neighbours, or none of positive weight.
//
// Step t of walk w of a start node draws (common/draw.h, as that node at the given hop) from block
// w * blocks_per_walk() + block_of(t). Two steps share a block, but by weight each has its own:
//   step t       word 2 * (t & 1) chooses the in-neighbour, the next word decides what follows
//   by weight    word 0 chooses a slot, word 2 is the coin that chooses from it, word 1 decides what
//                follows
// So a walk depends on nothing but its start, its number and the key.
#pragma once

#include "common/alias.h"

namespace lg {

constexpr int64_t kMaxWalkBlocks = kMaxDraws / 4;  // num_walks * blocks_per_walk()

struct WalkSettings {
  int64_t length;                     // steps a walk, at least 1
  int64_t num_walks;                  // walks a start, at least 1
  uint64_t end_below, restart_below;  // end_below <= restart_below <= 2^32
  const AliasEntry* table = nullptr;  // of the graph's weights; nullptr: without

  LG_HD int64_t blocks_per_walk() const { return block_of(length - 1) + 1; }
  LG_HD int64_t block_of(int64_t t) const { return table ? t : t / 2; }
  LG_HD bool is_second(int64_t t) const { return !table && (t & 1); }  // of its block
};

}  // namespace lg
