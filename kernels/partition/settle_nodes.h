// settle_nodes.h: nodes that no method has dealt out go to a part that holds them anyway.
//
// By ascending id, each open node goes to the part that owns fewest nodes so far, of those that hold
// it, or of all where none does. Equal ones: lowest index.
//
//   in     held[N]      bit p: part p holds the node; bits from K on do not count. May be null.
//   inout  part[N]      in [0, K), or -1: open
//   inout  num_own[K]   nodes with that part
// O(N) where most nodes are held by few parts, O(N K) at worst.
#pragma once

#include <cstdint>

namespace lg {

void settle_nodes(const uint64_t* held, int64_t num_nodes, int32_t* part, int64_t* num_own,
                  int64_t num_parts);

}  // namespace lg
