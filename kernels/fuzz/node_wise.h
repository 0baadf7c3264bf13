// node_wise.h: what node-wise sampling must come to, slowly and plainly; for the targets of all
// samplers of that kind (sample_neighbors/node_wise.h).
#pragma once

#include <functional>
#include <vector>

#include "fuzz/sampling.h"
#include "sample_neighbors/node_wise.h"

namespace lg::fuzz {

// Draw j of [0, bound).
int64_t wanted_draw(const NodeDraws& draws, int64_t j, int64_t bound);

// Which of `degree` edges a destination takes, uniformly, as positions in its list. fanout -1: all.
std::vector<int64_t> wanted_positions(const NodeDraws& draws, int64_t degree, int64_t fanout,
                                      bool replace);

struct Pick {
  int64_t node;
  int64_t edge = -1;  // position in the graph's indices
  int64_t type = 0;
  float weight = 1;
};

// The edges that a destination takes at a hop, in order.
using PickEdges = std::function<std::vector<Pick>(const BatchRequest&, int64_t node, uint32_t hop)>;

// One request, good or bad: sample(), a kernel's batch, and pick() must agree.
void request_batch(Choices& choose, const Workspace& workspace, int64_t num_graph_nodes,
                   size_t num_hops, Expand expand, EdgeColumns columns, const Sample& sample,
                   const PickEdges& pick);

}  // namespace lg::fuzz
