#include "sample_weighted/sample_weighted.h"

#include "sample_typed/runs.h"
#include "sample_typed/with_queries.h"
#include "sample_weighted/pick_weighted.h"

namespace lg {
namespace {

template <class Ids>
struct PrefetchNode {
  const Ids& ids;

  template <class Index>
  LG_PREFETCHES void operator()(const Csc<Index>& graph, int64_t value) const {
    PrefetchDegree()(graph, ids.node(value));
  }
};
template <class Ids>
PrefetchNode(const Ids&) -> PrefetchNode<Ids>;

}  // namespace

template <class Index, class Runs>
SampleLayout sample_weighted(Workspace& workspace, const WeightedRequest<Index, Runs>& request) {
  const EdgeColumns columns{/*ids=*/request.edge_ids, /*weights=*/false,
                            /*types=*/kHasTypes<Runs>};
  const auto sample = [&](auto& batch, const auto& ids) {
    WeightedPicker picker(workspace, request, ids);
    NodeWise(batch, request.graph, picker, request.edge_ids, PrefetchNode{ids})
        .run(request.fanouts.size() / size_t(request.num_types), request.expand);
  };
  const int64_t num_nodes = request.graph.num_nodes;
  if (!request.queries.of_seed) {
    return with_batch(workspace, num_nodes, request.batch, columns,
                      [&](auto& batch) { sample(batch, batch.ids()); });
  }
  check_workspace(workspace, num_nodes);
  const Workspace::Lease lease(workspace);
  return with_queries(workspace, request.queries, nullptr, num_nodes, request.batch, columns,
                      sample);
}

template SampleLayout sample_weighted(Workspace&, const WeightedRequest<int32_t>&);
template SampleLayout sample_weighted(Workspace&, const WeightedRequest<int64_t>&);
template SampleLayout sample_weighted(Workspace&, const WeightedRequest<int32_t, SparseRuns>&);
template SampleLayout sample_weighted(Workspace&, const WeightedRequest<int64_t, SparseRuns>&);
template SampleLayout sample_weighted(Workspace&,
                                      const WeightedRequest<int32_t, DenseRuns<uint32_t>>&);
template SampleLayout sample_weighted(Workspace&,
                                      const WeightedRequest<int32_t, DenseRuns<int64_t>>&);
template SampleLayout sample_weighted(Workspace&,
                                      const WeightedRequest<int64_t, DenseRuns<uint32_t>>&);
template SampleLayout sample_weighted(Workspace&,
                                      const WeightedRequest<int64_t, DenseRuns<int64_t>>&);

}  // namespace lg
