// deal_seeds.h: seeds dealt out to parts one after the other, each to the part that scores highest.
//
// Seed v scores, at a part with TV_i seeds so far out of S to come in all, and PV_i nodes,
//   (overlap_weight overlap + smoothing) (S / K - TV_i) / max(PV_i, 1)
// where IN(v) is what leads to v in at most `hops` steps, and overlap the number of its nodes that
// are seeds of the part (as in the paper), or that the part holds at all, v included. The part then
// holds v and IN(v). Equal scores: fewest nodes, then lowest index. Scores are compared as fractions
// of integers, exactly.
//
//   in       seeds[n]       none of them dealt out before
//   in       quotas[K]      as many seeds of this phase as each part shall have; they add up to S
//   inout    part[N]        of each seed dealt out, of whatever phase; negative for all other nodes
//   inout    num_seeds[K]   TV_i
//   inout    num_nodes[K]   PV_i
//   inout    held[K * W]    a bit a node, W words of 64 a part: what it holds
//   scratch  seen[W]        zeros before and after
//   ret                     how many of `seeds` were dealt out; fewer than n where `max_edges` had
//                           been read by then
// A seed that is no node, or has a part already, or finds no room, is a SeedError. Time: one visit
// to each edge that ends within hops - 1 steps of a seed.
// Source: PaGraph (TPDS'21), section 3.2, Eq. 1, and section 4, Algorithm 1.
#pragma once

#include <cstdint>

#include "common/batch.h"

namespace lg {

enum class Overlap { kSeeds, kNodes };

struct DealSettings {
  Overlap overlap;
  int64_t hops;                       // at least 1
  int64_t overlap_weight, smoothing;  // in [0, 2^16): then no score exceeds 128 bits
  int64_t max_edges;
};

// Of one stream, which may be dealt in several calls.
struct DealState {
  int64_t num_parts;  // 1 to 64
  int8_t* part;
  int64_t* num_seeds;
  int64_t* num_nodes;
  uint64_t* held;
  uint64_t* seen;
};

template <class Index>
int64_t deal_seeds(const Csc<Index>& graph, const int64_t* seeds, int64_t count,
                   const int64_t* quotas, const DealSettings& settings, DealState& state);

}  // namespace lg
