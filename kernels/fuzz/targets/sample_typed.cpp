// Edges are indexed by type, sorted or not, and each type is drawn from as if there were no others.
#include "sample_typed/sample_typed.h"

#include <map>

#include "fuzz/node_wise.h"
#include "graph/index_edge_types.h"
#include "sample_typed/pick_typed.h"

namespace lg::fuzz {
namespace {

Exact<int32_t> random_types(Choices& choose, const int64_t* indptr, int64_t num_nodes,
                            int64_t num_types) {
  Exact<int32_t> types(indptr[num_nodes]);
  for (int64_t e = 0; e < types.size(); ++e) types[e] = int32_t(choose.below(num_types));
  if (choose.flag()) {  // stored by type: then there is no order to follow
    for (int64_t v = 0; v < num_nodes; ++v) {
      std::sort(types.data() + indptr[v], types.data() + indptr[v + 1]);
    }
  }
  return types;
}

template <class Index>
void sample_random_graph(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const int64_t num_types = 1 + choose.size(choose.one_in(50) ? kMaxEdgeTypes - 1 : 5);
  const Exact<int32_t> types =
      random_types(choose, graph.indptr.data(), graph.num_nodes(), num_types);

  Exact<int64_t> run_ptr(graph.num_nodes() + 1);
  const bool sorted =
      count_edge_type_runs(graph.indptr.data(), graph.num_nodes(), types.data(), run_ptr.data());
  const int64_t num_runs = run_ptr[graph.num_nodes()];
  Exact<int32_t> run_type(num_runs);
  Exact<uint32_t> run_end(num_runs), order(sorted ? 0 : types.size());
  index_edge_types(graph.indptr.data(), graph.num_nodes(), types.data(), run_ptr.data(),
                   run_type.data(), run_end.data(), sorted ? nullptr : order.data());

  Workspace workspace = random_workspace(choose, graph.num_nodes());
  for (int64_t left = choose.between(1, 3); left > 0; --left) {
    SampleTypedRequest<Index> request{
        {graph.csc(), {}},
        {run_ptr.data(), run_type.data(), run_end.data(), sorted ? nullptr : order.data()},
        {},
        num_types,
        choose.size(3),
        choose.flag(),
        choose.flag() ? Expand::kAll : Expand::kNew,
        choose.flag()};
    request.fanouts.resize(size_t(request.num_hops * num_types));
    for (int64_t& fanout : request.fanouts) {
      fanout = choose.one_of<int64_t>({kAllNeighbors, 0, 0, 1, 2, 3, 5, 16, 17, 65});
    }
    request_batch(
        choose, workspace, graph.num_nodes(), size_t(request.num_hops), request.expand,
        {/*ids=*/request.edge_ids, /*weights=*/false, /*types=*/true},
        [&](const BatchRequest& batch) {
          request.batch = batch;
          return sample_typed(workspace, request);
        },
        [&](const BatchRequest& batch, int64_t node, uint32_t hop) {
          std::map<int32_t, std::vector<int64_t>> edges;  // by type, ascending
          for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e) {
            edges[types[e]].push_back(e);
          }
          const StreamKey key = stream_key(batch.seed, batch.epoch);
          std::vector<Pick> picks;
          for (const auto& [type, of_type] : edges) {
            const int64_t fanout = request.fanouts[size_t(hop * num_types + type)];
            if (fanout == 0) continue;
            for (const int64_t position :
                 wanted_positions(node_draws(key, batch.step, typed_hop(batch.hop + hop, type),
                                             request.graph.name(node)),
                                  int64_t(of_type.size()), fanout, request.replace)) {
              const int64_t edge = of_type[size_t(position)];
              picks.push_back({int64_t(graph.indices[edge]), edge, type});
            }
          }
          return picks;
        });
  }
}

}  // namespace

LG_FUZZ_TARGET(sample_typed) {
  choose.flag() ? sample_random_graph<int32_t>(choose) : sample_random_graph<int64_t>(choose);
}

}  // namespace lg::fuzz
