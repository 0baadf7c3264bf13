// vote_nodes.h: nodes that no method has dealt out go where most of their in-neighbours are.
//
// By ascending id, each open node leaves the part that it is in, if any, and goes to the one that
// owns most of its in-neighbours, of those that may own it: that hold it, or all where none does,
// and that own less than `capacity`. Equal votes: fewest nodes, then lowest index. Without a vote,
// it stays. Later nodes see where it went.
//
//   in     open[N]      not 0: may be moved
//   in     held[N]      bit p: part p holds the node; bits from K on do not count. May be null.
//   inout  part[N]      in [0, K), or -1: none yet
//   inout  num_own[K]   nodes with that part; 1 <= K <= 64
//   in     begin, end   the nodes whose turn it is
// O(edges that end there).
// Source: label propagation with capacities, Ugander & Backstrom, WSDM'13; streamed as
// in Stanton & Kliot, KDD'12.
#pragma once

#include <cstdint>

#include "common/batch.h"

namespace lg {

struct Voters {
  const uint8_t* open;
  const uint64_t* held;
  int32_t* part;
  int64_t* num_own;
  int64_t num_parts, capacity;
};

template <class Index>
void vote_nodes(const Csc<Index>& graph, int64_t begin, int64_t end, Voters& voters);

}  // namespace lg
