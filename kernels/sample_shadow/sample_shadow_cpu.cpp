#include "sample_shadow/sample_shadow.h"

#include "sample_neighbors/node_wise.h"
#include "sample_neighbors/pick_uniform.h"
#include "sample_neighbors/sample_neighbors.h"
#include "sample_shadow/lay_subgraph.h"

namespace lg {

template <class Index>
SampleLayout sample_shadow(Workspace& workspace, const ShadowRequest<Index>& request) {
  const EdgeColumns columns{/*ids=*/request.edge_ids};
  const SampleRequest<Index> scope{request, request.fanouts,
                                   /*replace=*/false, Expand::kNew, /*edge_ids=*/false};
  return with_batch(workspace, request.graph.num_nodes, request.batch, columns, [&](auto& batch) {
    UniformPicker<Index> picker(workspace, scope);
    NodeWise(batch, request.graph, picker, scope.edge_ids).find_nodes(scope.fanouts.size());
    lay_subgraph(batch, request.graph, request.num_layers, request.edge_ids);
    batch.write_edges();
  });
}

template SampleLayout sample_shadow(Workspace&, const ShadowRequest<int32_t>&);
template SampleLayout sample_shadow(Workspace&, const ShadowRequest<int64_t>&);

}  // namespace lg
