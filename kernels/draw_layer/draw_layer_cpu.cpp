#include "draw_layer/draw_layer.h"

#include <numeric>

#include "sample_layers/draw_edges.h"
#include "sample_layers/rows.h"

namespace lg {

void draw_layer(const LayerDraw& request, Edges& edges) {
  const int64_t num_edges =
      std::accumulate(request.degrees, request.degrees + request.num_dst, int64_t(0));
  const NodeDraws draws =
      node_draws(stream_key(request.seed, request.epoch), request.step, request.hop, request.name);
  DrawnEdges drawn;
  const auto [count, factor] =
      draw_layer_edges(num_edges, request.budget, request.replace, draws, drawn, [](int64_t) {});
  std::vector<double> values;
  Rows rows(edges, values, /*edge_ids=*/true, request.normalize);
  rows.start(0, request.num_dst);
  const int64_t* numbers = drawn.numbers.data();
  int64_t i = 0, first = 0;  // first: the number of the destination's first edge
  for (int64_t dst = 0; dst < request.num_dst; ++dst) {
    const int64_t degree = request.degrees[dst];
    while (i < count && numbers[i] - first < degree) {
      const int64_t number = numbers[i];
      double sum = 0;  // an edge that was drawn twice is one edge of twice the factor
      for (; i < count && numbers[i] == number; ++i) sum += factor;
      rows.add(0, number - first, sum);
    }
    rows.end_row(double(degree));
    first += degree;
  }
}

}  // namespace lg
