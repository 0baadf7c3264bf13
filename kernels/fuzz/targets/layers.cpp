// Layers are drawn within their budgets, from the graph's own edges, none of weight zero, alike in any
// workspace; a tree of importances that is none is refused or draws something, and no more.
#include "fuzz/structure.h"
#include "importance_tree/importance_tree.h"
#include "sample_layers/sample_layers.h"

namespace lg::fuzz {
namespace {

template <class Index>
LayerRequest<Index> random_request(Choices& choose, const Csc<Index>& graph) {
  LayerRequest<Index> request{};
  request.graph = graph;
  request.method = choose.one_of({LayerMethod::kLadies, LayerMethod::kFastGcn, LayerMethod::kDsp});
  request.budgets.resize(size_t(choose.size(3)));
  for (int64_t& budget : request.budgets) {
    budget = choose.flag() ? kWholeLayer : 1 + choose.size(100);
  }
  request.replace = choose.flag();
  request.normalize = choose.flag();
  request.keep_known = request.method != LayerMethod::kDsp && choose.flag();
  request.expand = choose.flag() ? Expand::kAll : Expand::kNew;
  request.edge_ids = choose.flag();
  return request;
}

// The weights of a graph's edges, which may be none.
struct Weights {
  int64_t kind;
  Exact<float> narrow;
  Exact<double> wide;

  Weights(Choices& choose, int64_t num_edges)
      : kind(num_edges == 0 ? 0 : choose.size(3)),
        narrow(kind == 1 ? num_edges : 0),
        wide(kind > 1 ? num_edges : 0) {
    const bool alike = choose.one_in(4);
    for (int64_t e = 0; e < narrow.size(); ++e) {
      narrow[e] = alike ? 0.3f : random_weight<float>(choose);
    }
    for (int64_t e = 0; e < wide.size(); ++e) wide[e] = alike ? 0.3 : random_weight<double>(choose);
  }

  EdgeWeights view() const {
    return {narrow.size() ? narrow.data() : nullptr, wide.size() ? wide.data() : nullptr};
  }

  void expect_positive(const BatchRequest& batch, const SampleLayout& layout) const {
    for (const HopLayout& hop : layout.hops) {
      if (!view() || hop.edge_ids_offset < 0) continue;
      const auto* ids = reinterpret_cast<const int64_t*>(batch.arena + hop.edge_ids_offset);
      for (int64_t e = 0; e < hop.num_edges; ++e) {
        expect(view().bits(ids[e]) > 0, "edge ", ids[e], " of weight zero is drawn");
      }
    }
  }
};

template <class Index>
void sample(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const Weights weights(choose, graph.indices.size());
  Exact<int64_t> tree(graph.num_nodes() + 1);
  importance_tree(graph.csc(), weights.view(), tree.data());
  Workspace workspace = random_workspace(choose, graph.num_nodes());
  for (int64_t left = choose.between(1, 3); left > 0; --left) {
    LayerRequest<Index> request = random_request(choose, graph.csc());
    request.importance_tree = tree.data();
    request.weights = weights.view();
    request_pure_batch(choose, workspace, graph.csc(), request.budgets.size(),
                       [&](Workspace& used, const BatchRequest& batch) {
                         request.batch = batch;
                         const SampleLayout layout = sample_layers(used, request);
                         weights.expect_positive(batch, layout);
                         return layout;
                       });
  }
}

}  // namespace

LG_FUZZ_TARGET(sample_layers) { choose.flag() ? sample<int32_t>(choose) : sample<int64_t>(choose); }

// Callers hand it over as an array, which may be anything.
LG_FUZZ_TARGET(sample_layers_by_any_tree) {
  const Graph<int64_t> graph = random_graph<int64_t>(choose);
  Exact<int64_t> tree(graph.num_nodes() + 1);
  const Weights weights(choose, graph.indices.size());
  importance_tree(graph.csc(), weights.view(), tree.data());
  for (int64_t left = 1 + choose.size(5); left > 0; --left) {
    tree[choose.below(tree.size())] =
        choose.one_of<int64_t>({0, 1, -1, INT64_MAX, INT64_MIN, choose.size(1 << 30)});
  }
  Workspace workspace = random_workspace(choose, graph.num_nodes());
  LayerRequest<int64_t> request = random_request(choose, graph.csc());
  request.method = LayerMethod::kFastGcn;
  request.importance_tree = tree.data();
  request.weights = weights.view();
  const Exact<int64_t> seeds = random_seeds(choose, graph.num_nodes());
  outcome_of([&] {
    sample_into_arenas(random_batch_request(choose, seeds), 1 << 12,
                       [&](const BatchRequest& batch) {
                         request.batch = batch;
                         return sample_layers(workspace, request);
                       });
  });
}

}  // namespace lg::fuzz
