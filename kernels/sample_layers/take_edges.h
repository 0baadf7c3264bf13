// take_edges.h: a hop that draws edges, and keeps these alone. It reads no adjacency list as a whole.
#pragma once

#include <cstdint>
#include <vector>

#include "sample_layers/draw_edges.h"
#include "sample_layers/layer.h"
#include "sample_layers/rows.h"
#include "sample_layers/sample_layers.h"

namespace lg {

struct TakeEdgesScratch {
  DrawnEdges drawn;
  std::vector<int64_t> positions, sources;  // of drawn edges
};

template <class Batch, class Index>
class TakeEdges {
 public:
  TakeEdges(Batch& batch, const LayerRequest<Index>& request)
      : batch_(batch),
        request_(request),
        scratch_(batch.workspace().template scratch<TakeEdgesScratch>()) {}

  void run(const Layer<Index>& layer, size_t hop, const NodeDraws& draws, Rows& rows) {
    const auto [count, factor] = draw_layer_edges(
        layer.num_edges(), request_.budgets[hop], request_.replace, draws, scratch_.drawn,
        [&](int64_t edges) { batch_.check_num_edges(rows.num_edges() + edges); });
    read_sources(layer, count);
    keep_edges(layer, count, factor, rows);
  }

 private:
  void read_sources(const Layer<Index>& layer, int64_t count) {
    const Index* indices = request_.graph.indices;
    const int64_t* numbers = scratch_.drawn.numbers.data();
    int64_t* positions = reserve(scratch_.positions, count);
    int64_t* sources = reserve(scratch_.sources, count);
    int64_t dst = 0, first = 0;  // the number of its first edge
    for (int64_t i = 0; i < count; ++i) {
      while (numbers[i] - first >= layer[dst].degree) first += layer[dst++].degree;
      positions[i] = layer[dst].start + numbers[i] - first;
      __builtin_prefetch(&indices[positions[i]]);
    }
    for (int64_t i = 0; i < count; ++i) {
      sources[i] = indices[positions[i]];
      batch_.prefetch(sources[i]);
    }
  }

  // An edge that was drawn twice is one edge of twice the factor.
  void keep_edges(const Layer<Index>& layer, int64_t count, double factor, Rows& rows) {
    batch_.reserve_nodes(count);
    const int64_t* positions = scratch_.positions.data();
    const int64_t* sources = scratch_.sources.data();
    int64_t i = 0;
    for (int64_t dst = 0; dst < layer.num_destinations(); ++dst) {
      const auto [start, degree] = layer[dst];
      while (i < count && in_range(positions[i] - start, degree)) {
        const int64_t position = positions[i];
        const int32_t source = batch_.add(sources[i]);
        double sum = 0;
        for (; i < count && positions[i] == position; ++i) sum += factor;
        rows.add(source, position, sum);
      }
      rows.end_row(degree);
    }
  }

  Batch& batch_;
  const LayerRequest<Index>& request_;
  TakeEdgesScratch& scratch_;
};

}  // namespace lg
