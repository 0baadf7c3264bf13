// induce_subgraph.h: the edges among the nodes of a batch.
//
// Destinations are nodes[0] to nodes[num_dst - 1]; each keeps those in-neighbours that are in the
// batch, in adjacency order, repeated edges and loops included. They go to the batch's `edges`.
// Costs a look-up for each in-neighbour of each destination, in the batch or not: a hub pays for its
// whole list, since lists need not be sorted.
#pragma once

#include "common/batch.h"
#include "common/scan_neighbors.h"

namespace lg {

template <class Batch, class Index>
void induce_subgraph(Batch& batch, const Csc<Index>& graph, int64_t num_dst, bool edge_ids) {
  Edges& edges = batch.edges();
  int32_t* indptr = reserve(edges.indptr, num_dst + 1);
  int64_t num_edges = indptr[0] = 0;
  const auto prefetch = [&](int64_t neighbor) { batch.prefetch(neighbor); };
  const auto visit = [&](const NeighborRun& run) {
    // Whether a neighbour is in the batch cannot be predicted: all are written, and some stay.
    const int64_t room = num_edges + run.end - run.begin;
    int32_t* indices = reserve(edges.indices, room);
    int64_t* ids = edge_ids ? reserve(edges.ids, room) : nullptr;
    for (int64_t position = run.begin; position < run.end; ++position) {
      const int32_t local = batch.find(graph.indices[position]);
      indices[num_edges] = local;
      if (ids) ids[num_edges] = position;
      num_edges += local >= 0;
    }
    batch.check_num_edges(num_edges);
    indptr[run.index + 1] = int32_t(num_edges);
  };
  NeighborScan(graph, batch.nodes(), num_dst).run(prefetch, visit);
}

}  // namespace lg
