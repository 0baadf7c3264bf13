// sample_labor.h: layer-neighbour sampling: destinations that share a neighbour share its draw.
//
// Each source node t has one draw r_t, uniform in [0, 2^64), per hop, or one for all hops
// (layer_dependency). An in-neighbour t of s, of `degree` in all, is kept
//   importance 0      if r_t * degree < fanout * 2^64: with probability fanout / degree
//   importance i, -1  with a probability of its own, as low as a neighbourhood of equal variance
//                     allows (importance.h), after i iterations or until they converge
//   fixed_count       if r_t is among the `fanout` smallest (importance 0 only); of equal ones, which
//                     repeated edges have, the first
// and always where degree <= fanout. Repeated edges t -> s are kept all or none, unless counts are
// fixed. A node's edges are in adjacency order.
// In a graph with types each run is such a list of its own, and a source has a draw for each edge type
// and hop: destinations share it within a type. Importance is not for these.
// Source: Balin & Catalyurek, "Layer-neighbor sampling", NeurIPS'23, section 3; fixed_count:
// sequential Poisson sampling, appendix A.3.
#pragma once

#include <cstdint>
#include <vector>

#include "common/batch.h"
#include "sample_neighbors/node_wise.h"
#include "sample_typed/one_run.h"

namespace lg {

// Edge weights of inverse probability p.
enum class Estimate {
  kMean,  // 1 / p, scaled to a mean of one over each destination's edges (Hajek)
  kSum,   // 1 / p (Horvitz and Thompson)
};

constexpr int64_t kUntilConverged = -1;  // as an importance

// Runs: OneRun, DenseRuns or SparseRuns (sample_typed/runs.h).
template <class Index, class Runs = OneRun>
struct LaborRequest : SamplerInput<Index> {
  Runs runs;
  std::vector<int64_t> fanouts;  // [num_hops][num_types], nearest hop first; -1: all, 0: none
  int64_t num_types;             // 1 without types
  int64_t importance;
  bool layer_dependency;
  bool fixed_count;
  Estimate estimate;
  Expand expand;
  bool edge_ids;
};

// Edge weights are written where they differ: with importance, or for sums.
// Throws SeedError, SamplerConfigError, ArenaTooSmall. The workspace is left clean in every case.
template <class Index, class Runs>
SampleLayout sample_labor(Workspace& workspace, const LaborRequest<Index, Runs>& request);

}  // namespace lg
