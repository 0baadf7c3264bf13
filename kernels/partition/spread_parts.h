// spread_parts.h: one hop of the closure of all parts at once.
//
// A mask tells of a node which parts hold it: bit p for part p. Whoever holds a node takes in its
// in-neighbours.
//
//   in   fresh[N]  parts that came to hold the node at the hop before, and now spread
//   i/o  held[N]   all parts that hold it; those that come to hold it now are added
//   out  next[N]   those that came to hold it now: the fresh ones of the next hop
//   ret            of how many nodes next is not empty; 0 says that all parts are closed
// One pass over the lists of nodes with fresh parts, in the order of the graph, so that a mapped one
// is read in turn; O(N + E) time, no memory of its own.
// Source: PaGraph (TPDS'21), section 3.2, self-reliance.
#pragma once

#include <cstdint>

#include "common/batch.h"

namespace lg {

template <class Index>
int64_t spread_parts(const Csc<Index>& graph, const uint64_t* fresh, uint64_t* held,
                     uint64_t* next);

}  // namespace lg
