// sample_hgt.h: HGT's budget sampling: so many nodes of each type a hop, and the subgraph that they
// induce.
//
// A node that comes into the batch gives each of its in-neighbours outside, for each type of edges, 1/d,
// where d edges of the type lead into it. Of more than max_neighbors of them, so many are drawn, as
// sample_typed() would with that fanout at the hop that follows, and these get 1/max_neighbors each.
// What a node has been given is its budget. A hop takes num_samples nodes of each type among those that
// have one, all if these are no more, else without replacement by squared budget: the nodes of least
// E / budget^2, where E is exponential and made of the node's source draw (common/draw.h) at the hop.
// So a draw hangs on no other node's, nor on any order.
// Budgets are counted in whole units of 2^-32, rounded down: sums are exact, in whatever order.
//
// Nodes are the seeds, then hop by hop those that it took, in ascending order. All hops of the layout
// share one CSC, of lay_subgraph(): the first has the seeds as destinations, the others all nodes.
// Source: Hu et al., "Heterogeneous graph transformer", WWW'20, section 4.2, algorithms 1 and 2;
// Efraimidis & Spirakis, "Weighted random sampling with a reservoir", IPL 97(5), 2006.
#pragma once

#include <cstdint>
#include <vector>

#include "common/batch.h"
#include "sample_typed/dense_runs.h"

namespace lg {

template <class Index, class Offset>
struct HgtRequest : SamplerInput<Index> {
  DenseRuns<Offset> runs;
  std::vector<int64_t> num_samples;  // [num_hops][node types], 0 or more
  int64_t num_hops;                  // at most kMaxTypedHops
  int64_t max_neighbors;             // positive, or kAllNeighbors
  int64_t num_layers;                // at least 1
  bool edge_ids;
};

// Throws SeedError, SamplerConfigError, ArenaTooSmall. The workspace is left clean in every case.
template <class Index, class Offset>
SampleLayout sample_hgt(Workspace& workspace, const HgtRequest<Index, Offset>& request);

}  // namespace lg
