#include "sample_shadow/sample_shadow.h"

#include "induced_edges/induce.h"
#include "sample_neighbors/node_wise.h"
#include "sample_neighbors/pick_uniform.h"
#include "sample_neighbors/sample_neighbors.h"

namespace lg {

template <class Index>
SampleLayout sample_shadow(Workspace& workspace, const ShadowRequest<Index>& request) {
  const EdgeColumns columns{/*ids=*/request.edge_ids};
  const SampleRequest<Index> scope{request, request.fanouts,
                                   /*replace=*/false, Expand::kNew, /*edge_ids=*/false};
  return with_batch(workspace, request.graph.num_nodes, request.batch, columns, [&](auto& batch) {
    const int64_t num_seeds = batch.num_nodes();
    UniformPicker<Index> picker(workspace, scope);
    NodeWise(batch, request.graph, picker, scope.edge_ids).find_nodes(scope.fanouts.size());

    const int64_t num_dst = request.num_layers == 1 ? num_seeds : batch.num_nodes();
    const auto check = [&](int64_t num_edges) { batch.check_num_edges(num_edges); };
    using Table = std::decay_t<decltype(batch.table())>;
    Inducer<Table, Index, decltype(check)> inducer(request.graph, batch.edges(), request.edge_ids,
                                                   check);
    inducer.add(batch.table(), batch.nodes(), batch.num_nodes(), num_dst);
    const int32_t* indptr = batch.edges().indptr.data();
    batch.end_hop(num_seeds, indptr[num_seeds]);
    for (int64_t layer = 1; layer < request.num_layers; ++layer) {
      batch.end_hop(num_dst, indptr[num_dst]);
    }
    batch.write_edges();
  });
}

template SampleLayout sample_shadow(Workspace&, const ShadowRequest<int32_t>&);
template SampleLayout sample_shadow(Workspace&, const ShadowRequest<int64_t>&);

}  // namespace lg
