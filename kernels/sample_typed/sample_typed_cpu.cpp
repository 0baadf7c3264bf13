#include "sample_typed/sample_typed.h"

#include "sample_typed/pick_typed.h"

namespace lg {

template <class Index>
SampleLayout sample_typed(Workspace& workspace, const SampleTypedRequest<Index>& request) {
  EdgeColumns columns;
  columns.ids = request.edge_ids;
  columns.types = true;
  return with_batch(workspace, request.graph.num_nodes, request.batch, columns, [&](auto& batch) {
    TypedPicker<Index> picker(workspace, request);
    NodeWise(batch, request.graph, picker, request.edge_ids)
        .run(size_t(request.num_hops), request.expand);
  });
}

template SampleLayout sample_typed(Workspace&, const SampleTypedRequest<int32_t>&);
template SampleLayout sample_typed(Workspace&, const SampleTypedRequest<int64_t>&);

}  // namespace lg
