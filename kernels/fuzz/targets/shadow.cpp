// A scope keeps every edge that joins two of its nodes, and no other.
#include "fuzz/induced.h"
#include "fuzz/structure.h"
#include "sample_shadow/sample_shadow.h"

namespace lg::fuzz {
namespace {

template <class Index>
void sample(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  Workspace workspace = random_workspace(choose, graph.num_nodes());
  for (int64_t left = choose.between(1, 3); left > 0; --left) {
    ShadowRequest<Index> request{};
    request.graph = graph.csc();
    request.fanouts.resize(size_t(choose.size(3)));
    for (int64_t& fanout : request.fanouts) {
      fanout = choose.one_of<int64_t>({-1, 1, 2, 3, 5, 17, 65});
    }
    request.num_layers = 1 + choose.size(4);
    request.edge_ids = choose.flag();
    request_pure_batch(choose, workspace, graph.csc(), size_t(request.num_layers),
                       [&](Workspace& used, const BatchRequest& batch) {
                         request.batch = batch;
                         const SampleLayout layout = sample_shadow(used, request);
                         expect_induced(layout, batch.arena, request.graph);
                         return layout;
                       });
  }
}

}  // namespace

LG_FUZZ_TARGET(sample_shadow) { choose.flag() ? sample<int32_t>(choose) : sample<int64_t>(choose); }

}  // namespace lg::fuzz
