// sample_walks.h: PinSAGE's neighbourhoods, into an arena (common/batch.h).
//
// The neighbours of a destination at a hop are the nodes that its walks (random_walk/random_walk.h)
// visit most often, and the number of visits is the weight of the edge. Ties go to the smaller name
// (Csc::names), and a node's edges are in that order: most visits first. The start of a walk counts
// as a visit only when the walk comes back to it; between types, nodes reached amid a round do not.
//
// The batch is a pure function of (graph, seeds, settings, key). With Expand::kNew all hops share
// one CSC, each a prefix of the next.
#pragma once

#include <cstdint>

#include "common/batch.h"
#include "random_walk/random_walk.h"
#include "sample_neighbors/node_wise.h"

namespace lg {

constexpr int64_t kMaxVisits = 0xffff;  // rounds * num_walks

template <class Index, class Lists = WholeLists>
struct WalkSampleRequest : SamplerInput<Index> {
  Lists lists;  // random_walk/walk_lists.h
  WalkSettings walks;
  int64_t num_hops;
  int64_t num_neighbors;  // at most so many a node and hop
  bool include_self;      // whether a destination can be its own neighbour
  bool normalize;         // weights of a destination sum to one
  Expand expand;
};

// Throws SeedError, SamplerConfigError, ArenaTooSmall. The workspace is left clean in every case.
template <class Index, class Lists>
SampleLayout sample_walks(Workspace& workspace, const WalkSampleRequest<Index, Lists>& request);

}  // namespace lg
