// add_hop.h: one hop into an arena (common/batch.h), of neighbours that somebody else has chosen.
//
// The arena begins with the nodes known so far, which are the hop's destinations, and ends with the
// hops before; the new hop is put in front of them, and nodes that it finds behind the known ones, in
// order of first occurrence.
#pragma once

#include <cstdint>

#include "common/batch.h"

namespace lg {

struct ChosenEdges {
  const int64_t* counts;  // of each destination
  const int64_t* neighbors;
  int64_t num_edges;
  // Of each edge, or null: the hop then has no such column.
  const int64_t* ids;
  const float* weights;
  const int32_t* types;
};

// batch.seeds are the known nodes: they may be those in the arena. batch.arena_bytes: where the hops
// before begin. Throws SamplerConfigError: a neighbour that is no node, counts that are negative or do
// not sum to num_edges; SeedError: a known node that is none or repeats; ArenaTooSmall. The workspace
// is left clean in every case.
SampleLayout add_hop(Workspace& workspace, int64_t num_graph_nodes, const BatchRequest& batch,
                     const ChosenEdges& edges);

}  // namespace lg
