#include "draw_nodes/draw_nodes.h"

#include "sample_layers/draw_items.h"

namespace lg {

void draw_nodes(const NodesDraw& request, int64_t* nodes, double* factors) {
  const NodeDraws draws =
      node_draws(stream_key(request.seed, request.epoch), request.step, request.hop, request.name);
  SharedTree::Scratch scratch;
  SharedTree tree(request.tree, request.num_nodes, scratch);
  draw_items(tree, request.budget, request.replace, draws, [&](int64_t node, double factor) {
    *nodes++ = node;
    *factors++ = factor;
  });
}

}  // namespace lg
