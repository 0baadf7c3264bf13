// sample_neighbors.h: uniform neighbourhood sampling, node by node, into an arena (common/batch.h).
//
// The batch is a pure function of (graph, seeds, fanouts, options, key): see common/draw.h. A node's
// edges are in the order of draws, or in adjacency order where all neighbours are taken. With
// Expand::kNew all hops share one CSC, each a prefix of the next, since the nodes that a hop expands
// are a consecutive range of `nodes`.
#pragma once

#include <cstdint>
#include <vector>

#include "common/batch.h"
#include "sample_neighbors/node_wise.h"

namespace lg {

template <class Index>
struct SampleRequest : SamplerInput<Index> {
  std::vector<int64_t> fanouts;  // nearest hop first
  bool replace;
  Expand expand;
  bool edge_ids;
};

// Throws SeedError, SamplerConfigError, ArenaTooSmall. The workspace is left clean in every case.
template <class Index>
SampleLayout sample_neighbors(Workspace& workspace, const SampleRequest<Index>& request);

}  // namespace lg
