// join_blocks.h: for each small block, a large one that it borders on and that has room for it.
//
// Every edge between the two, in either direction, is a vote. A large block that has more than half of
// a small one's votes wins; where none has, one of those with votes does. Boyer and Moore's counting
// takes two numbers a block, however many there are and border on each other. Small blocks then join
// by ascending number; one that would make its large block exceed `most` nodes stays alone.
//
//   in   block_of[N]     in [0, B)
//   in   sizes[B]        nodes of each block
//   in   is_large[B]     0 or 1
//   in   most            nodes of a block that others join
//   out  joins[B]        the large block that each small one joins; -1 for the others
// A block out of range is a GraphFormatError. O(E) time, the lists read in turn; 12 bytes a block.
// Source: BGL (NSDI'23), section 3.3.1; Boyer & Moore, "MJRTY: a fast majority vote algorithm", 1991.
#pragma once

#include <cstdint>

#include "common/batch.h"

namespace lg {

struct BlockSizes {
  const int32_t* sizes;
  const uint8_t* is_large;
  int64_t num_blocks;
  int64_t most;
};

template <class Index>
void join_blocks(const Csc<Index>& graph, const int32_t* block_of, const BlockSizes& blocks,
                 int32_t* joins);

}  // namespace lg
