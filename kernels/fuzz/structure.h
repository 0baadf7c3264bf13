// structure.h: what holds for every sampler's batch, whatever it draws; for targets of samplers
// whose choice is not made again here.
#pragma once

#include <functional>

#include "fuzz/sampling.h"

namespace lg::fuzz {

// A graph with indices of either type.
struct AnyGraph {
  template <class Index>
  AnyGraph(const Csc<Index>& graph)
      : indptr(graph.indptr),
        num_nodes(graph.num_nodes),
        source([indices = graph.indices](int64_t edge) { return int64_t(indices[edge]); }) {}

  const int64_t* indptr;
  int64_t num_nodes;
  std::function<int64_t(int64_t edge)> source;
};

using SampleIn = std::function<SampleLayout(Workspace&, const BatchRequest&)>;

// One request, good or bad. Nodes of its batch are distinct, seeds first; hops grow one from the
// other; edges are the graph's, if they say which; weights are finite and positive; and another
// workspace makes the same batch again.
void request_pure_batch(Choices& choose, Workspace& workspace, const AnyGraph& graph,
                        size_t num_hops, const SampleIn& sample);

}  // namespace lg::fuzz
