// draw_nodes.h: which nodes of a whole graph a layer draws, apart from its lists.
//
// The draws of sample_layers' kFastGcn (sample_layers/sample_layers.h), and the factor of each: whoever
// holds lists keeps the edges from these nodes. So a layer is drawn over lists that lie in many places.
//
//   in   tree[num_nodes + 1]  of importances (importance_tree/tree.h), some of them positive
//   in   budget               1 to kMaxDraws64; without replacement, at most the nodes of positive importance
//   in   name                 of the batch's first seed
//   out  nodes[budget], factors[budget], in the order of the draws; one drawn again comes again
// Throws SamplerConfigError: it is no such tree.
#pragma once

#include <cstdint>

namespace lg {

struct NodesDraw {
  const int64_t* tree;
  int64_t num_nodes;
  int64_t budget;
  bool replace;
  uint64_t seed;
  uint32_t epoch, step, hop;
  int64_t name;
};

void draw_nodes(const NodesDraw& request, int64_t* nodes, double* factors);

}  // namespace lg
