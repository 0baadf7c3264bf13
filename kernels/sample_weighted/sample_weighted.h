// sample_weighted.h: neighbourhood sampling by edge weight, node by node, into an arena.
//
// As sample_neighbors.h, but each neighbour is drawn in proportion to its weight, from the graph's
// alias tables (build_alias/). Where all neighbours are taken, those of weight zero are left out; a
// node whose weights are all zero has no edges. In a graph with types, each run is drawn from as if
// there were no others, from a table of its own, and the block carries edge types. With
// queries, a node belongs to the query that it was found for (sample_typed/queries.h).
#pragma once

#include <cstdint>
#include <vector>

#include "common/alias.h"
#include "common/batch.h"
#include "sample_neighbors/node_wise.h"
#include "sample_typed/one_run.h"
#include "sample_typed/queries.h"
#include "sample_weighted/draw_weighted.h"

namespace lg {

// Runs: OneRun, DenseRuns or SparseRuns (sample_typed/runs.h).
template <class Index, class Runs = OneRun>
struct WeightedRequest : SamplerInput<Index> {
  Runs runs;
  const AliasEntry* table;
  std::vector<int64_t> fanouts;  // [num_hops][num_types], nearest hop first; 0 draws none
  int64_t num_types;             // 1 without types
  bool replace;
  Expand expand;
  bool edge_ids;
  Queries
      queries;  // which rows share nodes, and the names that they draw by: neither times nor exclusion
};

// Throws SeedError, SamplerConfigError, ArenaTooSmall. The workspace is left clean in every case.
template <class Index, class Runs>
SampleLayout sample_weighted(Workspace& workspace, const WeightedRequest<Index, Runs>& request);

}  // namespace lg
