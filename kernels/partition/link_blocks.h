// link_blocks.h: the graph of blocks: how many edges lead from each to each.
//
//   in   block_of[N]     in [0, B)
//   out  counts[B * B]   counts[a * B + b]: edges that make a node of b an in-neighbour of a node of a
// A block out of range is a GraphFormatError. O(E + B^2) time, the lists read in turn.
// Source: BGL (NSDI'23), section 3.3.1.
#pragma once

#include <cstdint>

#include "common/batch.h"

namespace lg {

template <class Index>
void link_blocks(const Csc<Index>& graph, const int32_t* block_of, int64_t num_blocks,
                 int64_t* counts);

}  // namespace lg
