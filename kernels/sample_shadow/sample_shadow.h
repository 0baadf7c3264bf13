// sample_shadow.h: ShaDow sampling: a scope around the seeds, and the subgraph that it induces.
//
// The scope is found as sample_neighbors() with Expand::kNew finds its nodes, with the same draws.
// All hops share one CSC, of induced_edges/induce.h: the first has the seeds as destinations, the
// others all nodes.
// Source: Zeng et al., "Decoupling the depth and scope of graph neural networks", NeurIPS'21,
// section 3.
#pragma once

#include <cstdint>
#include <vector>

#include "common/batch.h"

namespace lg {

template <class Index>
struct ShadowRequest : SamplerInput<Index> {
  std::vector<int64_t> fanouts;  // of the scope, nearest hop first
  int64_t num_layers;            // at least 1
  bool edge_ids;
};

// Throws SeedError, SamplerConfigError, ArenaTooSmall. The workspace is left clean in every case.
template <class Index>
SampleLayout sample_shadow(Workspace& workspace, const ShadowRequest<Index>& request);

}  // namespace lg
