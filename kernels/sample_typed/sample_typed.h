// sample_typed.h: neighbourhood sampling with a fanout for each edge type, node by node.
//
// A node's edges are in ascending order of type, and within a type as sample_neighbors() has them:
// each type's in-neighbours are drawn from as if there were no others. The block carries edge types.
#pragma once

#include <cstdint>
#include <vector>

#include "common/batch.h"
#include "sample_neighbors/node_wise.h"

namespace lg {

constexpr int64_t kMaxTypedHops = 16;

// What index_edge_types() made.
struct EdgeTypeIndex {
  const int64_t* run_ptr;
  const int32_t* run_type;
  const uint32_t* run_end;
  const uint32_t* order;  // null: the edges are sorted by type
};

template <class Index>
struct SampleTypedRequest : SamplerInput<Index> {
  EdgeTypeIndex types;
  std::vector<int64_t> fanouts;  // [num_hops][num_types], nearest hop first; 0 draws none
  int64_t num_types;             // more than any type of the graph
  int64_t num_hops;              // at most kMaxTypedHops
  bool replace;
  Expand expand;
  bool edge_ids;
};

template <class Index>
SampleLayout sample_typed(Workspace& workspace, const SampleTypedRequest<Index>& request);

}  // namespace lg
