// sample_layers.h: layer-wise sampling into an arena (common/batch.h): a hop draws for all its
// destinations together, within a budget.
//
//   kLadies   draws nodes among the destinations' in-neighbours, by their importance to them
//   kFastGcn  draws nodes of the whole graph, by their importance to all of it
//             Both keep every edge from a drawn node to a destination. A drawn node without one is
//             left out.
//   kDsp      draws edges among those into the destinations, by weight, and keeps these alone
//
// Items stand in a line, each as long as its importance (importance_tree/importance.h). Draw j is a
// place on what is left of the line, draw_below64(draws, j, length), and draws the item there; without
// replacement the item is then taken off: at once, or, in kDsp, once a wave (draw_waves.h). In line are
//   kLadies   known nodes by local id, then others by first occurrence in the adjacency lists
//   kFastGcn  all nodes by id
//   kDsp      if the graph has weights: the layer's edges in order, by these (whole_weights.h)
// Without weights, or where those of a layer are equal, which then count as none, kDsp draws uniformly:
// without replacement by Floyd's algorithm, draw j over the first E - n + j + 1 of E.
// A layer draws as the first of the batch's seeds: so batches of one step, which share no seed, draw
// independently.
//
// Every edge carries a weight. An item that is drawn has a factor, 0 if it is not, whose expectation
// over the draws is 1 (draw_factor.h; for edges, E / n a draw); known nodes that are kept have factor
// 1, and so has everything where the budget takes all. An edge's weight is factor / in-degree of the
// destination, so that weighted sums estimate means over all in-neighbours, without bias. If rows are
// normalised, it is factor / sum of the factors of the destination's edges. If the graph has weights,
// the numerator is factor * w, and the denominator is the sum of the w of the destination's list, or
// of the numerators. An edge of weight zero is as good as none. Factors are doubles, and a weight is
// rounded to float once.
//
// Edges are in adjacency order. The batch is a pure function of (graph, seeds, budgets, options, key).
// Scratch: 4 bytes an edge into the destinations (kDsp: none; by weight 8), some 40 bytes a candidate,
// 16 a destination.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/batch.h"
#include "importance_tree/whole_weights.h"
#include "sample_layers/budget.h"
#include "sample_neighbors/node_wise.h"

namespace lg {

enum class LayerMethod { kLadies = 0, kFastGcn = 1, kDsp = 2 };

// Nodes that were drawn elsewhere (draw_nodes/draw_nodes.h), each draw with its factor.
struct DrawnNodes {
  const int64_t* nodes = nullptr;
  const double* factors = nullptr;
  int64_t count = 0;
};

template <class Index>
struct LayerRequest : SamplerInput<Index> {
  std::vector<int64_t> budgets;  // nearest hop first; each kWholeLayer or 1 to kMaxDraws64
  LayerMethod method;
  const int64_t* importance_tree;  // of graph and weights: importance_tree.h; for kFastGcn alone
  bool replace;
  bool normalize;   // the weights of each destination's edges add up to 1
  bool keep_known;  // keep all edges from nodes that the batch has anyway, draw others. Not kDsp
  Expand expand;
  bool edge_ids;
  int64_t num_drawn = 0;  // so many of the first seeds are no destinations of the first hop
  EdgeWeights weights = {};
  std::optional<DrawnNodes> drawn = {};  // kFastGcn: each hop takes these, and draws none
};

// Throws SeedError, SamplerConfigError, GraphFormatError, ArenaTooSmall. The workspace is left clean
// in every case.
template <class Index>
SampleLayout sample_layers(Workspace& workspace, const LayerRequest<Index>& request);

}  // namespace lg
