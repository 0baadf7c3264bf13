// take_edges.h: a hop that draws edges, and keeps these alone. It reads no adjacency list as a whole,
// but, if there are any, all weights of the layer's edges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "common/fetch.h"
#include "common/signals.h"
#include "importance_tree/tree.h"
#include "sample_layers/draw_edges.h"
#include "sample_layers/draw_items.h"
#include "sample_layers/draw_waves.h"
#include "sample_layers/layer.h"
#include "sample_layers/rows.h"
#include "sample_layers/sample_layers.h"

namespace lg {

struct TakeEdgesScratch {
  DrawnEdges drawn;
  std::vector<double> factors;                      // of draws
  std::vector<int64_t> tree;                        // over the layer's edges
  std::vector<std::pair<int64_t, double>> by_item;  // draws, in their order
  std::vector<int64_t> positions, sources;          // of drawn edges
};

template <class Batch, class Index>
class TakeEdges {
 public:
  TakeEdges(Batch& batch, const LayerRequest<Index>& request)
      : batch_(batch),
        request_(request),
        scratch_(batch.workspace().template scratch<TakeEdgesScratch>()) {}

  void run(const Layer<Index>& layer, size_t hop, const NodeDraws& draws, Rows& rows) {
    const int64_t budget = request_.budgets[hop];
    const auto check = [&](int64_t edges) { batch_.check_num_edges(rows.num_edges() + edges); };
    int64_t count;
    // Edges of equal weight are drawn, and count, as if they had none.
    const bool weighted = weigh(layer);
    if (weighted) {
      count = draw_by_weight(layer.num_edges(), budget, draws, check);
    } else {
      const DrawnLayer drawn = draw_layer_edges(layer.num_edges(), budget, request_.replace, draws,
                                                scratch_.drawn, check);
      count = drawn.count;
      std::fill_n(reserve(scratch_.factors, count), count, drawn.factor);
    }
    read_sources(layer, count);
    keep_edges(layer, weighted ? request_.weights : EdgeWeights{}, count, rows);
  }

 private:
  // Whether the layer's edges differ in weight; their weights then make the tree.
  bool weigh(const Layer<Index>& layer) {
    const EdgeWeights& weights = request_.weights;
    if (!weights) return false;
    uint64_t least = ~uint64_t(0), greatest = 0;
    SignalWatch signals;
    const auto for_each = [&](const auto& use) {
      for (int64_t dst = 0; dst < layer.num_destinations(); ++dst) {
        const auto [start, degree] = layer[dst];
        for (int64_t i = 0; i < degree; ++i) use(weights.bits(start + i));
        signals.after(degree);
      }
    };
    for_each([&](uint64_t bits) {
      least = std::min(least, bits);
      greatest = std::max(greatest, bits);
    });
    weights.check(greatest);
    if (least >= greatest && greatest > 0) return false;
    int64_t* const entries = reserve(scratch_.tree, layer.num_edges() + 1);
    const WeightUnits units(weights, greatest, layer.num_edges());
    int64_t* entry = entries;
    for_each([&](uint64_t bits) { *++entry = int64_t(units(bits)); });
    build_tree(entries, layer.num_edges());
    return true;
  }

  // Returns the number of draws, by the tree. Edges of weight zero are left out by keep_edges().
  template <class CheckCount>
  int64_t draw_by_weight(int64_t num_edges, int64_t budget, const NodeDraws& draws,
                         const CheckCount& check_count) {
    OwnTree tree(scratch_.tree.data(), num_edges);
    const int64_t num_items = scratch_.tree[0];
    if (takes_all(budget, request_.replace, num_items)) {
      check_count(num_edges);
      int64_t* numbers = reserve(scratch_.drawn.numbers, num_edges);
      std::iota(numbers, numbers + num_edges, int64_t(0));
      std::fill_n(reserve(scratch_.factors, num_edges), num_edges, 1.0);
      return num_edges;
    }
    const int64_t count = num_items == 0 ? 0 : budget;
    check_count(count);
    auto& by_item = scratch_.by_item;
    by_item.clear();
    const auto take = [&](int64_t item, double factor) { by_item.emplace_back(item, factor); };
    if (request_.replace) {
      draw_items(tree, count, /*replace=*/true, draws, take);
    } else {
      NodeList seen{reserve(scratch_.drawn.numbers, count + 1), 0};
      scratch_.drawn.table.clear(seen);  // of what the call before drew
      draw_waves(
          tree, count, draws,
          [&](int64_t item) {
            const int64_t num_seen = seen.count;
            return scratch_.drawn.table.insert(item, seen) == num_seen;
          },
          take);
    }
    std::sort(by_item.begin(), by_item.end());
    int64_t* numbers = reserve(scratch_.drawn.numbers, count);
    double* factors = reserve(scratch_.factors, count);
    for (const auto& [item, factor] : by_item) {
      *numbers++ = item;
      *factors++ = factor;
    }
    return count;
  }

  void read_sources(const Layer<Index>& layer, int64_t count) {
    const Index* indices = request_.graph.indices;
    const int64_t* numbers = scratch_.drawn.numbers.data();
    int64_t* positions = reserve(scratch_.positions, count);
    int64_t* sources = reserve(scratch_.sources, count);
    int64_t dst = 0, first = 0;  // the number of its first edge
    for (int64_t i = 0; i < count; ++i) {
      while (numbers[i] - first >= layer[dst].degree) first += layer[dst++].degree;
      positions[i] = layer[dst].start + numbers[i] - first;
      fetch_line(&indices[positions[i]]);
    }
    for (int64_t i = 0; i < count; ++i) {
      sources[i] = indices[positions[i]];
      batch_.prefetch(sources[i]);
    }
  }

  // An edge that was drawn twice is one edge of twice the factor.
  void keep_edges(const Layer<Index>& layer, const EdgeWeights& weights, int64_t count,
                  Rows& rows) {
    batch_.reserve_nodes(count);
    const int64_t* positions = scratch_.positions.data();
    const int64_t* sources = scratch_.sources.data();
    int64_t i = 0;
    SignalWatch signals;
    for (int64_t dst = 0; dst < layer.num_destinations(); ++dst) {
      const auto [start, degree] = layer[dst];
      const auto is_here = [&] { return i < count && in_range(positions[i] - start, degree); };
      if (!is_here()) {
        rows.end_row(double(degree));
        continue;
      }
      const ListWeights list(weights, start, degree);
      signals.after(degree);
      while (is_here()) {
        const int64_t position = positions[i], source = sources[i];
        double sum = 0;
        for (; i < count && positions[i] == position; ++i) sum += scratch_.factors[i];
        const uint64_t weight = list[position - start];
        if (weight > 0) rows.add(batch_.add(source), position, sum * double(weight));
      }
      rows.end_row(double(list.sum()));
    }
  }

  Batch& batch_;
  const LayerRequest<Index>& request_;
  TakeEdgesScratch& scratch_;
};

}  // namespace lg
