// draw_distinct.h: Floyd's choice without replacement (sample_uniform.h) by a group of lanes, a lane a
// draw: the same picks in the same order.
//
// Draw j is replaced by `last` = degree - fanout + j if what it drew was picked before: by a draw that
// drew the same, replaced itself or not; or by a draw i that was replaced, whose `last` it is. So
// whether j is replaced hangs at most on whether one earlier draw is, and such chains, each link of
// which goes to a lower lane, are followed by doubling.
// Fanouts above the lanes go in rounds. Picks of earlier rounds are in a table.
#pragma once

#include "common/cuda/lanes.h"
#include "sample_neighbors/fanout.h"
#include "sample_neighbors/sample_uniform.h"

namespace lg {

// A set of positions in global memory, that one group of lanes shares. `size` is a power of two, and
// more than twice the picks.
struct PickTable {
  uint32_t* entries;
  uint32_t size;
  static constexpr uint32_t kFree = 0xffffffffu;  // no position: degrees are below 2^32

  // Of memory for all groups of a grid, one's own; of none, none.
  __device__ PickTable of_group(int64_t group) const {
    return {entries == nullptr ? nullptr : entries + group * size, size};
  }

  // Entries are written by atomics, past the first-level cache: so they are read there.
  __device__ bool contains(uint32_t position) const {
    for (uint32_t i = home(position);; i = (i + 1) & (size - 1)) {
      const uint32_t found = __ldcg(entries + i);
      if (found == position) return true;
      if (found == kFree) return false;
    }
  }

  __device__ void add(uint32_t position) const {
    uint32_t i = home(position);
    while (atomicCAS(entries + i, kFree, position) != kFree) i = (i + 1) & (size - 1);
  }

  template <int kLanes>
  __device__ void clear(const Lanes<kLanes>& lanes) const {
    for (uint32_t i = lanes.lane; i < size; i += kLanes) __stcg(entries + i, kFree);
    __syncwarp(lanes.mask);
  }

 private:
  __device__ uint32_t home(uint32_t position) const {
    return (position * 0x9E3779B9u >> 7) & (size - 1);  // Fibonacci hashing
  }
};

//   in   degree             fanout < degree < 2^32
//   in   earlier            unused where fanout <= kLanes
//   out  put(j, position)   for each draw j, by some lane
template <int kLanes, class Put>
__device__ void draw_distinct(const Lanes<kLanes>& lanes, const NodeDraws& draws, uint32_t degree,
                              uint32_t fanout, const PickTable& earlier, const Put& put) {
  const bool in_rounds = fanout > kLanes;
  if (in_rounds) earlier.clear(lanes);
  for (uint32_t round = 0; round < fanout; round += kLanes) {
    const uint32_t j = round + lanes.lane, base = degree - fanout, last = base + j;
    const uint32_t mask = lanes.vote(j < fanout);
    if (j < fanout) {
      const uint32_t drawn = draw_below(draws, j, last + 1, draw_word(draws, j, 0));
      const uint32_t alike = __match_any_sync(mask, drawn);
      bool replaced = (alike & lanes.lower()) != 0 || (in_rounds && earlier.contains(drawn));
      // The lane that it hangs on; itself: on none.
      int leads = int(lanes.lane);
      if (!replaced && drawn >= base + round && drawn < last) leads = int(drawn - base - round);
      while (__any_sync(mask, leads != int(lanes.lane))) {
        const bool its_replaced = lanes.get(mask, int(replaced), leads) != 0;
        const int its_leads = lanes.get(mask, leads, leads);
        if (leads == int(lanes.lane)) continue;
        if (its_leads == leads) {
          replaced = its_replaced;
          leads = int(lanes.lane);
        } else {
          leads = its_leads;
        }
      }
      const uint32_t position = replaced ? last : drawn;
      put(j, position);
      if (in_rounds) earlier.add(position);
    }
    if (in_rounds) __syncwarp(lanes.mask);
  }
}

// What a destination takes of `degree` in-neighbours (fanout.h), by a group of lanes.
//
//   in   draws_of()         the destination's draws, where it draws
//   in   earlier            unused with replacement, and where fanout <= kLanes
//   out  put(j, position)   for each edge j, by some lane
template <int kLanes, class DrawsOf, class Put>
__device__ void pick_positions(const Lanes<kLanes>& lanes, const DrawsOf& draws_of, int64_t degree,
                               int64_t fanout, bool replace, const PickTable& earlier,
                               const Put& put) {
  if (!is_drawn(degree, fanout, replace)) {
    for (uint32_t j = lanes.lane; j < uint32_t(degree); j += kLanes) put(j, j);
    return;
  }
  const NodeDraws draws = draws_of();
  if (replace) {
    for (uint32_t j = lanes.lane; j < uint32_t(fanout); j += kLanes) {
      put(j, draw_below(draws, j, uint32_t(degree), draw_word(draws, j, 0)));
    }
  } else {
    draw_distinct(lanes, draws, uint32_t(degree), uint32_t(fanout), earlier, put);
  }
}

}  // namespace lg
