#include "sample_weighted/sample_weighted.h"

#include "sample_typed/runs.h"
#include "sample_weighted/pick_weighted.h"

namespace lg {

template <class Index, class Runs>
SampleLayout sample_weighted(Workspace& workspace, const WeightedRequest<Index, Runs>& request) {
  const EdgeColumns columns{/*ids=*/request.edge_ids, /*weights=*/false,
                            /*types=*/kHasTypes<Runs>};
  return with_batch(workspace, request.graph.num_nodes, request.batch, columns, [&](auto& batch) {
    WeightedPicker picker(workspace, request);
    NodeWise(batch, request.graph, picker, request.edge_ids)
        .run(request.fanouts.size() / size_t(request.num_types), request.expand);
  });
}

template SampleLayout sample_weighted(Workspace&, const WeightedRequest<int32_t>&);
template SampleLayout sample_weighted(Workspace&, const WeightedRequest<int64_t>&);
template SampleLayout sample_weighted(Workspace&,
                                      const WeightedRequest<int32_t, DenseRuns<uint32_t>>&);
template SampleLayout sample_weighted(Workspace&,
                                      const WeightedRequest<int32_t, DenseRuns<int64_t>>&);
template SampleLayout sample_weighted(Workspace&,
                                      const WeightedRequest<int64_t, DenseRuns<uint32_t>>&);
template SampleLayout sample_weighted(Workspace&,
                                      const WeightedRequest<int64_t, DenseRuns<int64_t>>&);

}  // namespace lg
