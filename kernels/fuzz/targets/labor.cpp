// Layer-neighbour batches are made of the graph's own edges, alike in any workspace, and counts are
// fixed where they are to be.
#include "fuzz/structure.h"
#include "sample_labor/sample_labor.h"

namespace lg::fuzz {
namespace {

template <class Index>
void sample(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  Workspace workspace = random_workspace(choose, graph.num_nodes());
  for (int64_t left = choose.between(1, 3); left > 0; --left) {
    LaborRequest<Index> request{};
    request.graph = graph.csc();
    request.runs = {graph.indptr.data()};
    request.num_types = 1;
    request.fanouts.resize(size_t(choose.size(3)));
    for (int64_t& fanout : request.fanouts) {
      fanout = choose.one_of<int64_t>({-1, 1, 2, 3, 5, 10, 17, 100});
    }
    request.importance = choose.one_of<int64_t>({0, 0, kUntilConverged, 1, 2, 5});
    request.layer_dependency = choose.flag();
    request.fixed_count = request.importance == 0 && choose.flag();
    request.estimate = choose.flag() ? Estimate::kMean : Estimate::kSum;
    request.expand = choose.flag() ? Expand::kAll : Expand::kNew;
    request.edge_ids = choose.flag();
    const auto expect_counts = [&](const SampleLayout& layout, const uint8_t* arena) {
      for (size_t h = 0; h < layout.hops.size() && request.expand == Expand::kAll; ++h) {
        const HopLayout& hop = layout.hops[h];
        const auto* nodes = reinterpret_cast<const int64_t*>(arena);
        const auto* indptr = reinterpret_cast<const int32_t*>(arena + hop.indptr_offset);
        for (int64_t dst = 0; dst < hop.num_dst; ++dst) {
          const int64_t degree = graph.indptr[nodes[dst] + 1] - graph.indptr[nodes[dst]];
          const int64_t fanout = request.fanouts[h], count = indptr[dst + 1] - indptr[dst];
          const bool takes_all = fanout == -1 || degree <= fanout;
          const bool is_fixed = takes_all || request.fixed_count;
          expect(count == (takes_all ? degree : fanout) || !is_fixed, "a node of in-degree ",
                 degree, " takes ", count, " at fanout ", fanout);
        }
      }
    };
    request_pure_batch(choose, workspace, graph.csc(), request.fanouts.size(),
                       [&](Workspace& used, const BatchRequest& batch) {
                         request.batch = batch;
                         const SampleLayout layout = sample_labor(used, request);
                         expect_counts(layout, batch.arena);
                         return layout;
                       });
  }
}

}  // namespace

LG_FUZZ_TARGET(sample_labor) { choose.flag() ? sample<int32_t>(choose) : sample<int64_t>(choose); }

}  // namespace lg::fuzz
