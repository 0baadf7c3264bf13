// sample_weighted.h: neighbourhood sampling by edge weight, node by node, into an arena.
//
// As sample_neighbors.h, but each neighbour is drawn in proportion to its weight, from the graph's
// alias tables (build_alias/). Where all neighbours are taken, those of weight zero are left out; a
// node whose weights are all zero has no edges.
#pragma once

#include <cstdint>
#include <vector>

#include "common/alias.h"
#include "common/batch.h"
#include "sample_neighbors/node_wise.h"
#include "sample_weighted/draw_weighted.h"

namespace lg {

template <class Index>
struct WeightedRequest : SamplerInput<Index> {
  const AliasEntry* table;
  std::vector<int64_t> fanouts;  // nearest hop first
  bool replace;
  Expand expand;
  bool edge_ids;
};

// Throws SeedError, SamplerConfigError, ArenaTooSmall. The workspace is left clean in every case.
template <class Index>
SampleLayout sample_weighted(Workspace& workspace, const WeightedRequest<Index>& request);

}  // namespace lg
