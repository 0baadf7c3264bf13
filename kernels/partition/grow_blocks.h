// grow_blocks.h: connected blocks of nodes, grown by breadth-first searches that take turns.
//
// A block starts at a source and takes nodes as its search comes to them: a node is of the block that
// comes first. It ends where its search has nowhere left to go, or at `most` nodes. All sources start
// at once; whenever a block ends, the lowest node of no block starts another. Searches go to the
// in-neighbours of a node in the order of its list, and take turns node by node, by one queue.
//
//   in   sources[S]      where to start
//   in   most            nodes of a block, at least 1
//   out  block_of[N]     numbered by their start
//   out  sizes[N]        nodes of each block; there are as many blocks as nodes at most
//   ret  the number of blocks
// A source that is no node is a SeedError. O(N + E) time; up to N ids, and 4 bytes a block.
// Source: BGL (NSDI'23), section 3.3.1.
#pragma once

#include <cstdint>

#include "common/batch.h"

namespace lg {

template <class Index>
struct GrowRequest {
  Csc<Index> graph;
  const int64_t* sources;
  int64_t num_sources;
  int64_t most;
};

template <class Index>
int64_t grow_blocks(const GrowRequest<Index>& request, int32_t* block_of, int32_t* sizes);

}  // namespace lg
