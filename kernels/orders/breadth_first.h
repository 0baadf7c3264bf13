// breadth_first.h: seeds in the order in which a breadth-first search comes to them.
//
// The search starts at roots[0], and whenever it has nowhere left to go, at the next root that it has
// not come to: each start makes a tree. From a node it goes to its in-neighbours in the order of their
// list, then, if a reversed graph is given, to those of that one. It ends with the last seed or root.
//
//   in   position[N]     of each node among the seeds; negative where it is none
//   in   num_seeds       how many to look for
//   out  order[S]        positions of seeds, as the search came to them
//   out  tree[S]         the number of the tree that each was found in, from 0
//   ret                  how many were found; S where every seed is a root, and each has its own position
// A root that is no node is a SeedError. O(N + E) time; N bits, and up to N ids.
// Source: BGL (NSDI'23), section 3.2.2.
#pragma once

#include <cstdint>

#include "common/batch.h"

namespace lg {

template <class Index>
struct SearchRequest {
  Csc<Index> graph;
  const Csc<Index>* reversed;  // may be null
  const int32_t* position;
  int64_t num_seeds;
  const int64_t* roots;
  int64_t num_roots;
};

template <class Index>
int64_t breadth_first(const SearchRequest<Index>& request, int32_t* order, int32_t* tree);

}  // namespace lg
