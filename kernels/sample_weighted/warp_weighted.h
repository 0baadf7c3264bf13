// warp_weighted.h: what draw_weighted.h chooses for one destination node, found by the lanes of a
// warp at once; and by those of a block, where trials do not suffice.
//
// All functions are called by all lanes, or threads, with equal arguments, and return the same to
// all. `pick` is theirs alone.
#pragma once

#include "common/cuda/scan.h"
#include "sample_weighted/draw_weighted.h"

namespace lg {

//   out  pick[fanout]   as draw_with_replacement() in draw_weighted.h
__device__ inline uint32_t warp_with_replacement(const WeightedNode& node, uint32_t fanout,
                                                 uint32_t* pick) {
  bool has_weight = true;
  for (uint32_t n = threadIdx.x % 32; n < fanout; n += 32) {
    pick[n] = node.neighbor(node.trial(n));
    has_weight = pick[n] != kNobody;
  }
  return __all_sync(kAllLanes, has_weight) ? fanout : 0;
}

// The trials of draw_without_replacement(): lane l makes trial 32 r + l of round r, and keeps what
// none before it brought.
//   out  pick[fanout]   the first `fanout` distinct positions in the order of trials
//   ret                 their number; 0 if the weights are all zero. If it is less, but not 0, more
//                       are to be drawn from shares.
__device__ inline uint32_t warp_distinct(const WeightedNode& node, uint32_t fanout,
                                         uint32_t* pick) {
  const uint32_t lane = threadIdx.x % 32, lower = (1u << lane) - 1;
  const uint32_t num_trials = max_trials(node.degree, fanout);
  uint32_t count = 0;
  for (uint32_t first = 0; first < num_trials && count < fanout; first += 32) {
    const bool tries = first + lane < num_trials;
    const uint32_t position = tries ? node.neighbor(node.trial(first + lane)) : kNobody;
    if (__any_sync(kAllLanes, tries && position == kNobody)) return 0;
    const uint32_t same = __match_any_sync(kAllLanes, position);
    bool is_new = tries && (same & lower) == 0;
    for (uint32_t k = 0; k < count; ++k) is_new = is_new && pick[k] != position;
    const uint32_t news = __ballot_sync(kAllLanes, is_new);
    const uint32_t at = count + uint32_t(__popc(news & lower));
    if (is_new && at < fanout) pick[at] = position;
    count += uint32_t(__popc(news));
    __syncwarp(kAllLanes);  // all see the picks so far
  }
  return count < fanout ? count : fanout;
}

// Calls take(k, position) for the k-th position of positive weight, in adjacency order; returns their
// number.
template <class Take>
__device__ uint32_t warp_weighty(const AliasEntry* entries, uint32_t degree, const Take& take) {
  const uint32_t lane = threadIdx.x % 32, lower = (1u << lane) - 1;
  uint32_t count = 0;
  for (uint64_t first = 0; first < degree; first += 32) {
    const uint64_t position = first + lane;
    const bool has_weight = position < degree && threshold_of(entries[position]) != 0;
    const uint32_t with = __ballot_sync(kAllLanes, has_weight);
    if (has_weight) take(count + uint32_t(__popc(with & lower)), uint32_t(position));
    count += uint32_t(__popc(with));
  }
  return count;
}

// As draw_from_shares() in draw_weighted.h, by a block of kScanThreads. Each thread has a run of
// neighbours whose shares it sums, and takes from.
//   tmp  shares[degree]
__device__ inline uint32_t block_from_shares(const WeightedNode& node, uint32_t fanout,
                                             Word* shares, uint32_t* pick, uint32_t count) {
  const uint64_t degree = node.degree, thread = threadIdx.x;
  for (uint64_t i = thread; i < degree; i += kScanThreads) shares[i] = 0;
  __syncthreads();
  for (uint64_t i = thread; i < degree; i += kScanThreads) {
    const AliasEntry entry = node.entries[i];
    atomicAdd(shares + i, Word(threshold_of(entry)));
    atomicAdd(shares + alias_of(entry), Word(kSlotShares - threshold_of(entry)));
  }
  __syncthreads();
  for (uint32_t k = uint32_t(thread); k < count; k += kScanThreads) shares[pick[k]] = 0;
  __syncthreads();
  const uint64_t run = (degree + kScanThreads - 1) / kScanThreads;
  const uint64_t begin = min(thread * run, degree), end = min(begin + run, degree);
  uint64_t own = 0;
  for (uint64_t i = begin; i < end; ++i) own += shares[i];
  const uint32_t first_draw = max_trials(node.degree, fanout);
  for (; count < fanout; ++count) {
    const BlockSum sum = block_sum(int64_t(own));
    const uint64_t left = uint64_t(sum.total);
    if (left == 0) break;
    uint64_t at = draw_below64(node.draws, first_draw + count, left) - uint64_t(sum.before);
    if (at >= own) continue;  // below the run, too: it has wrapped around
    uint64_t i = begin;
    while (at >= shares[i]) at -= shares[i++];
    pick[count] = uint32_t(i);
    own -= shares[i];
    shares[i] = 0;
  }
  return count;
}

}  // namespace lg
