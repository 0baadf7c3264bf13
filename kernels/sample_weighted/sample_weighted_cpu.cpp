#include "sample_weighted/sample_weighted.h"

#include "sample_weighted/pick_weighted.h"

namespace lg {

template <class Index>
SampleLayout sample_weighted(Workspace& workspace, const WeightedRequest<Index>& request) {
  const EdgeColumns columns{/*ids=*/request.edge_ids};
  return with_batch(workspace, request.graph.num_nodes, request.batch, columns, [&](auto& batch) {
    WeightedPicker<Index> picker(workspace, request);
    NodeWise(batch, request.graph, picker, request.edge_ids)
        .run(request.fanouts.size(), request.expand);
  });
}

template SampleLayout sample_weighted(Workspace&, const WeightedRequest<int32_t>&);
template SampleLayout sample_weighted(Workspace&, const WeightedRequest<int64_t>&);

}  // namespace lg
