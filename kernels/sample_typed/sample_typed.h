// sample_typed.h: neighbourhood sampling with a fanout for each edge type, in which seeds may ask for
// edges of their own times, by names of their own (queries.h).
//
// A node's edges are in the order of its runs (runs.h), and within a run as sample_neighbors() has them:
// each run's eligible edges are drawn from as if there were no others. The block carries edge types,
// unless the graph has none. Without types and queries it is the batch of sample_neighbors().
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "common/batch.h"
#include "sample_neighbors/node_wise.h"
#include "sample_typed/queries.h"
#include "sample_typed/runs.h"

namespace lg {

constexpr int64_t kMaxTypedHops = 16;

// The times of edges; null: there are none.
struct EdgeTimes {
  const uint32_t* code = nullptr;  // by position, ascending within a run
  const uint8_t* timed = nullptr;  // by edge type: whether its edges have times
};

using AnyRuns = std::variant<SparseRuns, DenseRuns<uint32_t>, DenseRuns<int64_t>>;

template <class Index>
struct SampleTypedRequest : SamplerInput<Index> {
  AnyRuns runs;
  EdgeTimes times;
  std::vector<int64_t> fanouts;  // [num_hops][num_types], nearest hop first; 0 draws none
  int64_t num_types;             // more than any type of the graph
  int64_t num_hops;              // at most kMaxTypedHops, where there are types
  bool is_untyped;               // the one type is none
  bool replace;
  bool newest;  // instead of a draw: the last of a run of a type with times
  Expand expand;
  bool edge_ids;
  Queries queries;
};

template <class Index>
SampleLayout sample_typed(Workspace& workspace, const SampleTypedRequest<Index>& request);

}  // namespace lg
