#include "sample_layers/sample_layers.h"

#include "sample_layers/layer_wise.h"

namespace lg {

template <class Index>
SampleLayout sample_layers(Workspace& workspace, const LayerRequest<Index>& request) {
  const EdgeColumns columns{/*ids=*/request.edge_ids, /*weights=*/true};
  return with_batch(workspace, request.graph.num_nodes, request.batch, columns,
                    [&](auto& batch) { sample_layer_wise(batch, request); });
}

template SampleLayout sample_layers(Workspace&, const LayerRequest<int32_t>&);
template SampleLayout sample_layers(Workspace&, const LayerRequest<int64_t>&);

}  // namespace lg
