// take_nodes.h: a hop that draws nodes, and keeps all edges from them to the destinations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/signals.h"
#include "importance_tree/importance.h"
#include "importance_tree/tree.h"
#include "sample_layers/candidates.h"
#include "sample_layers/draw_items.h"
#include "sample_layers/layer.h"
#include "sample_layers/rows.h"
#include "sample_layers/sample_layers.h"

namespace lg {

struct TakeNodesScratch {
  std::vector<int32_t> sources;     // of the layer's edges: candidates, or kNoCandidate
  std::vector<int64_t> candidates;  // their nodes
  std::vector<int32_t> local;       // by candidate: local id, kLeftOut or kNotYet
  std::vector<double> factors;      // by candidate; 0: not taken
  std::vector<int64_t> tree;        // over candidates
  std::vector<int64_t> found;       // taken nodes that are new to the batch
  SharedTree::Scratch shared_tree;
};

template <class Batch, class Index>
class TakeNodes {
 public:
  TakeNodes(Batch& batch, const LayerRequest<Index>& request)
      : batch_(batch),
        request_(request),
        scratch_(batch.workspace().template scratch<TakeNodesScratch>()) {}

  void run(const Layer<Index>& layer, size_t hop, const NodeDraws& draws, Rows& rows) {
    check_num_edges(layer, hop);
    const int64_t num_found = take(layer, request_.budgets[hop], draws, rows);
    batch_.reserve_nodes(num_found);
    for (int64_t i = 0; i < num_found; ++i) batch_.add(scratch_.found[i]);
  }

 private:
  using Table = std::remove_reference_t<decltype(std::declval<Batch>().table())>;
  static constexpr int32_t kNoCandidate = -1;
  static constexpr int32_t kLeftOut = -1, kNotYet = -2;  // as local ids

  void check_num_edges(const Layer<Index>& layer, size_t hop) const {
    // So that candidates, numbered after the nodes, fit int32.
    const int64_t bound = request_.batch.max_local - batch_.num_nodes();
    if (layer.num_edges() <= bound) return;
    fail<SamplerConfigError>("budgets[", hop, "]: the hop's ", layer.num_destinations(),
                             " destinations have ", layer.num_edges(), " edges, but at most ",
                             bound,
                             " can be weighed at once. Use a smaller batch, smaller budgets at the "
                             "hops before, or method=\"dsp\", which does not read all of them.");
  }

  // Returns the number of nodes in scratch.found.
  int64_t take(const Layer<Index>& layer, int64_t budget, const NodeDraws& draws, Rows& rows) {
    Candidates<Table> candidates(batch_.table(), batch_.nodes(), batch_.num_nodes(),
                                 scratch_.candidates);
    if (request_.method == LayerMethod::kLadies) {
      add_sources(layer, candidates);
      draw_from_layer(layer, candidates, budget, draws);
    } else if (request_.drawn) {
      add_drawn(candidates, *request_.drawn);
      find_sources(layer, candidates);
    } else if (takes_all(budget, request_.replace, request_.importance_tree[0])) {
      add_sources(layer, candidates);
      set_factors(candidates, 1.0);
    } else {
      draw_from_graph(layer, candidates, budget, draws);
      find_sources(layer, candidates);
    }
    if (request_.keep_known) std::fill_n(factors(), batch_.num_nodes(), 1.0);
    return request_.weights ? keep_edges<true>(layer, candidates, rows)
                            : keep_edges<false>(layer, candidates, rows);
  }

  void add_sources(const Layer<Index>& layer, Candidates<Table>& candidates) {
    int32_t* source = reserve(scratch_.sources, layer.num_edges());
    layer.for_each_block([&](int64_t node) { candidates.prefetch(node); },
                         [&](const int64_t* nodes, int count) {
                           candidates.expect(count);
                           candidates.add(nodes, count, source);
                           source += count;
                         });
  }

  void find_sources(const Layer<Index>& layer, Candidates<Table>& candidates) {
    int32_t* source = reserve(scratch_.sources, layer.num_edges());
    layer.for_each_block([&](int64_t node) { candidates.prefetch(node); },
                         [&](const int64_t* nodes, int count) {
                           for (int i = 0; i < count; ++i) *source++ = candidates.find(nodes[i]);
                         });
  }

  void draw_from_layer(const Layer<Index>& layer, const Candidates<Table>& candidates,
                       int64_t budget, const NodeDraws& draws) {
    const int64_t num_candidates = candidates.count();
    int64_t* entries = reserve(scratch_.tree, num_candidates + 1);
    std::fill_n(entries, num_candidates + 1, 0);
    add_importances(layer, entries + 1);
    if (request_.keep_known) std::fill_n(entries + 1, batch_.num_nodes(), 0);
    build_tree(entries, num_candidates);
    const int64_t num_items = entries[0];
    const bool all = takes_all(budget, request_.replace, num_items);
    set_factors(candidates, all ? 1.0 : 0.0);
    if (all || num_items == 0) return;
    OwnTree tree(entries, num_candidates);
    draw_items(tree, budget, request_.replace, draws,
               [&](int64_t candidate, double factor) { factors()[candidate] += factor; });
  }

  void add_importances(const Layer<Index>& layer, int64_t* importances) const {
    if (layer.num_edges() == 0) return;
    const ImportanceUnits units(layer.num_destinations());
    const int32_t* source = scratch_.sources.data();
    SignalWatch signals;
    for (int64_t dst = 0; dst < layer.num_destinations(); ++dst) {
      const int64_t degree = layer[dst].degree;
      signals.after(degree);
      if (degree == 0) continue;
      if (request_.weights) {
        const ListWeights list(request_.weights, layer[dst].start, degree);
        for (int64_t i = 0; i < degree; ++i) {
          importances[*source++] += importance_of(units, list, i);
        }
        continue;
      }
      const int64_t importance = units.of_edge(degree);
      for (int64_t i = 0; i < degree; ++i) importances[*source++] += importance;
    }
  }

  void draw_from_graph(const Layer<Index>& layer, Candidates<Table>& candidates, int64_t budget,
                       const NodeDraws& draws) {
    set_factors(candidates, 0.0);
    // Nothing of it may have an importance, where there are no edges or all weigh zero.
    if (layer.num_edges() == 0 || (request_.weights && request_.importance_tree[0] == 0)) return;
    expect_new(candidates, budget);
    SharedTree tree(request_.importance_tree, request_.graph.num_nodes, scratch_.shared_tree);
    draw_items(tree, budget, request_.replace, draws,
               [&](int64_t node, double factor) { add_draw(candidates, node, factor); });
  }

  void add_drawn(Candidates<Table>& candidates, const DrawnNodes& drawn) {
    set_factors(candidates, 0.0);
    expect_new(candidates, drawn.count);
    for (int64_t j = 0; j < drawn.count; ++j) {
      add_draw(candidates, drawn.nodes[j], drawn.factors[j]);
    }
  }

  void expect_new(Candidates<Table>& candidates, int64_t num_draws) {
    const int64_t most_new = std::min(num_draws, request_.graph.num_nodes);
    batch_.reserve_nodes(most_new);  // so that candidates fit int32
    candidates.expect(most_new);
    reserve(scratch_.factors, 1 + candidates.count() + most_new);
  }

  void add_draw(Candidates<Table>& candidates, int64_t node, double factor) {
    const int64_t count = candidates.count();
    const int32_t candidate = candidates.add(node);
    factors()[candidate] = candidate < count ? factors()[candidate] + factor : factor;
  }

  // By candidate; the entry before, kNoCandidate's, is 0.
  double* factors() { return scratch_.factors.data() + 1; }

  void set_factors(const Candidates<Table>& candidates, double factor) {
    reserve(scratch_.factors, 1 + candidates.count());
    factors()[kNoCandidate] = 0.0;
    std::fill_n(factors(), candidates.count(), factor);
  }

  // Keeps the edges whose source is taken; new nodes get the next local ids in order of occurrence.
  template <bool kWeighted>
  int64_t keep_edges(const Layer<Index>& layer, const Candidates<Table>& candidates, Rows& rows) {
    const int64_t num_known = batch_.num_nodes();
    const double* factor = factors();
    int32_t* local = reserve(scratch_.local, 1 + candidates.count()) + 1;
    local[kNoCandidate] = kLeftOut;
    for (int64_t i = 0; i < candidates.count(); ++i) {
      local[i] = factor[i] == 0 ? kLeftOut : i < num_known ? int32_t(i) : kNotYet;
    }
    const int32_t* source = scratch_.sources.data();
    int64_t num_found = 0;
    SignalWatch signals;
    for (int64_t dst = 0; dst < layer.num_destinations(); ++dst) {
      const auto [start, degree] = layer[dst];
      signals.after(degree);
      const ListWeights list(request_.weights, start, degree);
      for (int64_t i = 0; i < degree; ++i) {
        const int32_t candidate = *source++;
        if (local[candidate] == kLeftOut) continue;
        const uint64_t weight = kWeighted ? list[i] : 1;
        if (weight == 0) continue;
        if (local[candidate] == kNotYet) {
          reserve(scratch_.found, num_found + 1)[num_found] = candidates.node(candidate);
          local[candidate] = int32_t(num_known + num_found++);
        }
        rows.add(local[candidate], start + i, factor[candidate] * double(weight));
      }
      rows.end_row(double(list.sum()));
      batch_.check_num_edges(rows.num_edges());
    }
    return num_found;
  }

  Batch& batch_;
  const LayerRequest<Index>& request_;
  TakeNodesScratch& scratch_;
};

}  // namespace lg
