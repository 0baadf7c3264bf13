// random_walk.h: random walks along in-edges: from a node to one of its in-neighbours.
#pragma once

#include <cstdint>

#include "common/batch.h"
#include "random_walk/walk_lists.h"
#include "random_walk/walk_settings.h"

namespace lg {

template <class Index, class Lists = WholeLists>
struct WalkRequest {
  Csc<Index> graph;
  Lists lists;  // walk_lists.h
  const int64_t* starts;
  int64_t num_starts;
  WalkSettings walks;
  uint64_t seed;
  uint32_t epoch, step, hop;
};

//   out  traces[num_starts * num_walks][length + 1]   nodes, -1 after the end; the walks of a start
//                                                     are side by side
// Throws SeedError: a start out of range.
template <class Index, class Lists>
void random_walk(const WalkRequest<Index, Lists>& request, int64_t* traces);

}  // namespace lg
