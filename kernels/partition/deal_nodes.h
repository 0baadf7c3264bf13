// deal_nodes.h: nodes dealt out to parts in one stream, each to where its in-neighbours are and room is.
//
// In the order of ids, a node goes to the part that maximizes
//   (its in-neighbours there) * (1 - nodes / node_capacity), and for a seed * (1 - seeds / seed_capacity),
// where nodes and seeds are those that the stream has dealt to the part so far. Ties go to more room,
// then to the lower part. Parts that are full get nothing; where all are, the one with the fewest
// nodes does, and for a seed, the one with the fewest seeds.
//
//   in   is_seed[N]      0 or 1
//   io   part_of[N]      in: from an earlier stream, or -1: an in-neighbour that this one has yet to come
//                        to counts for that part. Out: the part of each node.
//   ret  how many nodes changed parts
// A part out of range is a GraphFormatError. O(E + N K) time, the lists read in turn; 24 bytes a part.
// Source: Stanton & Kliot, "Streaming graph partitioning for large distributed graphs", KDD'12 (linear
// deterministic greedy); Nishimura & Ugander, "Restreaming graph partitioning", KDD'13.
#pragma once

#include <cstdint>

#include "common/batch.h"

namespace lg {

template <class Index>
struct DealRequest {
  Csc<Index> graph;
  const uint8_t* is_seed;
  int64_t num_parts;
  int64_t node_capacity;
  int64_t seed_capacity;
};

template <class Index>
int64_t deal_nodes(const DealRequest<Index>& request, int32_t* part_of);

}  // namespace lg
