// layer_wise.h: layer-wise sampling: the walk over hops.
#pragma once

#include <cstdint>
#include <vector>

#include "sample_layers/layer.h"
#include "sample_layers/rows.h"
#include "sample_layers/sample_layers.h"
#include "sample_layers/take_edges.h"
#include "sample_layers/take_nodes.h"

namespace lg {

struct LayerWiseScratch {
  std::vector<AdjacencyList> lists;
  std::vector<double> values;
};

template <class Batch, class Index>
void sample_layer_wise(Batch& batch, const LayerRequest<Index>& request) {
  auto& scratch = batch.workspace().template scratch<LayerWiseScratch>();
  const bool all = request.expand == Expand::kAll;
  const BatchDraws batch_draws(request.graph, request.batch);
  TakeNodes take_nodes(batch, request);
  TakeEdges take_edges(batch, request);
  Rows rows(batch.edges(), scratch.values, request.edge_ids, request.normalize);
  int64_t first = request.num_drawn;  // of the destinations
  for (size_t hop = 0; hop < request.budgets.size(); ++hop) {
    const int64_t num_dst = batch.num_nodes();
    if (all && hop > 0) first = 0;
    const Layer layer(request.graph, batch.nodes() + first, num_dst - first, scratch.lists);
    const NodeDraws draws =
        num_dst > 0 ? batch_draws.of(batch.nodes()[0], uint32_t(hop)) : NodeDraws{};
    rows.start(first, num_dst);
    if (request.method == LayerMethod::kDsp) {
      take_edges.run(layer, hop, draws, rows);
    } else {
      take_nodes.run(layer, hop, draws, rows);
    }
    batch.end_hop(num_dst, rows.num_edges());
    if (all) batch.write_edges(hop);
    first = num_dst;
  }
  if (!all && !request.budgets.empty()) batch.write_edges();
}

}  // namespace lg
