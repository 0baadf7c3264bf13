#include "sample_neighbors/sample_neighbors.h"

#include "sample_neighbors/pick_uniform.h"

namespace lg {

template <class Index>
SampleLayout sample_neighbors(Workspace& workspace, const SampleRequest<Index>& request) {
  const EdgeColumns columns{/*ids=*/request.edge_ids};
  return with_batch(workspace, request.graph.num_nodes, request.batch, columns, [&](auto& batch) {
    UniformPicker<Index> picker(workspace, request);
    NodeWise(batch, request.graph, picker, request.edge_ids)
        .run(request.fanouts.size(), request.expand);
  });
}

template SampleLayout sample_neighbors(Workspace&, const SampleRequest<int32_t>&);
template SampleLayout sample_neighbors(Workspace&, const SampleRequest<int64_t>&);

}  // namespace lg
