// Batches equal those of a slow and plain sampler; bad requests are refused; a workspace serves the
// next request as well after any outcome.
#include "sample_neighbors/sample_neighbors.h"

#include "fuzz/node_wise.h"

namespace lg::fuzz {
namespace {

template <class Index>
void request_batches(Choices& choose, const Csc<Index>& graph, int64_t max_hops,
                     std::initializer_list<int64_t> possible_fanouts) {
  Workspace workspace = random_workspace(choose, graph.num_nodes);
  for (int64_t left = choose.between(1, 3); left > 0; --left) {
    std::vector<int64_t> fanouts(size_t(choose.size(max_hops)));
    for (int64_t& fanout : fanouts) fanout = choose.one_of(possible_fanouts);
    SampleRequest<Index> request{{graph, {}},
                                 fanouts,
                                 choose.flag(),
                                 choose.flag() ? Expand::kAll : Expand::kNew,
                                 choose.flag()};
    request_batch(
        choose, workspace, graph.num_nodes, fanouts.size(), request.expand,
        {/*ids=*/request.edge_ids},
        [&](const BatchRequest& batch) {
          request.batch = batch;
          return sample_neighbors(workspace, request);
        },
        [&](const BatchRequest& batch, int64_t node, uint32_t hop) {
          const StreamKey key = stream_key(batch.seed, batch.epoch);
          const int64_t start = graph.indptr[node], degree = graph.indptr[node + 1] - start;
          std::vector<Pick> picks;
          for (const int64_t position :
               wanted_positions(node_draws(key, batch.step, batch.hop + hop, graph.name(node)),
                                degree, fanouts[hop], request.replace)) {
            picks.push_back({int64_t(graph.indices[start + position]), start + position});
          }
          return picks;
        });
  }
}

template <class Index>
void sample_random_graph(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  request_batches(choose, graph.csc(), 4,
                  {kAllNeighbors, 1, 2, 3, 4, 5, 8, 15, 16, 17, 64, 65, 100});
}

}  // namespace

LG_FUZZ_TARGET(sample_neighbors) {
  choose.flag() ? sample_random_graph<int32_t>(choose) : sample_random_graph<int64_t>(choose);
}

// Degrees up to the largest, 2^32 - 1: positions beyond 32 bits, words that must be drawn again.
LG_FUZZ_TARGET(sample_neighbors_of_hubs) {
  if (endless_indices() == nullptr) return;
  Exact<int64_t> indptr(choose.between(1, 4) + 1);
  for (int64_t v = 1; v < indptr.size(); ++v) {
    const int64_t most = int64_t(1) << choose.below(33);
    indptr[v] = indptr[v - 1] + std::clamp<int64_t>(most - 2 + choose.below(4), 0, 0xffffffff);
  }
  const Csc<int32_t> graph{indptr.data(), endless_indices(), indptr.size() - 1};
  request_batches(choose, graph, 3, {1, 2, 3, 4, 5, 15, 16, 17, 40, 64, 65, 70});
}

}  // namespace lg::fuzz
