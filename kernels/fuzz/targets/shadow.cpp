// A scope keeps every edge that joins two of its nodes, and no other.
#include <set>

#include "fuzz/structure.h"
#include "sample_shadow/sample_shadow.h"

namespace lg::fuzz {
namespace {

template <class Index>
void expect_induced(const SampleLayout& layout, const uint8_t* arena, const Csc<Index>& graph) {
  const auto* nodes = reinterpret_cast<const int64_t*>(arena);
  const std::set<int64_t> scope(nodes, nodes + layout.num_nodes);
  for (const HopLayout& hop : layout.hops) {
    const auto* indptr = reinterpret_cast<const int32_t*>(arena + hop.indptr_offset);
    const auto* indices = reinterpret_cast<const int32_t*>(arena + hop.indices_offset);
    for (int64_t dst = 0; dst < hop.num_dst; ++dst) {
      int64_t next = indptr[dst];
      for (int64_t e = graph.indptr[nodes[dst]]; e < graph.indptr[nodes[dst] + 1]; ++e) {
        if (scope.count(graph.indices[e]) == 0) continue;
        expect(next < indptr[dst + 1] && nodes[indices[next]] == graph.indices[e], "destination ",
               dst, " lacks the edge ", e);
        ++next;
      }
      expect(next == indptr[dst + 1], "destination ", dst, " has edges of its own");
    }
  }
}

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
