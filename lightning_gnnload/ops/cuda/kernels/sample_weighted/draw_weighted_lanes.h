// draw_weighted_lanes.h: what draw_weighted.h chooses for one destination node, the same in the same
// order, by a group of lanes at once.
//
// All lanes of a group call with equal arguments, and get the same returned. put(j, position) is
// called for the j-th choice, by some lane.
#pragma once

#include "common/cuda/lanes.h"
#include "sample_neighbors/draw_distinct.h"
#include "sample_weighted/draw_weighted.h"

namespace lg {

// The first `limit` positions of positive weight, in adjacency order; returns their number.
template <int kLanes, class Put>
__device__ int64_t choose_weighty(const Lanes<kLanes>& lanes, const AliasEntry* entries,
                                  int64_t degree, int64_t limit, const Put& put) {
  int64_t count = 0;
  for (int64_t first = 0; first < degree && count < limit; first += kLanes) {
    const int64_t position = first + lanes.lane;
    const bool has_weight = position < degree && threshold_of(entries[position]) != 0;
    const uint32_t weighty = lanes.vote(has_weight);
    const int64_t j = count + __popc(weighty & lanes.lower());
    if (has_weight && j < limit) put(j, uint32_t(position));
    count += __popc(weighty);
  }
  return min(count, limit);
}

// The trials of draw_without_replacement(), a lane a trial: the distinct neighbours that they bring.
//
//   in   node      its weights are not all zero
//   in   earlier   unused where fanout <= 32
//   tmp  pick      [fanout], of these lanes alone: what was chosen so far
//   ret            how many were chosen; if less than the fanout, others are to be drawn from shares
template <int kLanes, class Put>
__device__ uint32_t choose_by_trials(const Lanes<kLanes>& lanes, const WeightedNode& node,
                                     uint32_t fanout, const PickTable& earlier, uint32_t* pick,
                                     const Put& put) {
  const bool is_few = fanout <= 32;
  const uint32_t num_trials = max_trials(node.degree, fanout);
  if (!is_few) earlier.clear(lanes);
  uint32_t count = 0;
  for (uint32_t first = 0; first < num_trials && count < fanout; first += kLanes) {
    const bool tries = first + lanes.lane < num_trials;
    const uint32_t position = tries ? node.neighbor(node.trial(first + lanes.lane)) : kNobody;
    const uint32_t alike = __match_any_sync(lanes.mask, position);
    bool is_new = tries && (alike & lanes.lower()) == 0;
    if (is_few) {
      for (uint32_t k = 0; k < count; ++k) is_new = is_new && pick[k] != position;
    } else {
      is_new = is_new && !earlier.contains(position);
    }
    const uint32_t news = lanes.vote(is_new);
    const uint32_t j = count + uint32_t(__popc(news & lanes.lower()));
    if (is_new && j < fanout) {
      pick[j] = position;
      put(j, position);
      if (!is_few) earlier.add(position);
    }
    count = min(fanout, count + uint32_t(__popc(news)));
    __syncwarp(lanes.mask);  // all lanes see what was chosen
  }
  return count;
}

}  // namespace lg
