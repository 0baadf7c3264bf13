#include "sample_labor/sample_labor.h"

#include "sample_labor/pick_important.h"
#include "sample_labor/pick_shared.h"

namespace lg {

template <class Index>
SampleLayout sample_labor(Workspace& workspace, const LaborRequest<Index>& request) {
  const bool weighted = request.importance != 0 || request.estimate == Estimate::kSum;
  const EdgeColumns columns{/*ids=*/request.edge_ids, /*weights=*/weighted};
  return with_batch(workspace, request.graph.num_nodes, request.batch, columns, [&](auto& batch) {
    const auto run = [&](auto picker) {
      NodeWise(batch, request.graph, picker, request.edge_ids)
          .run(request.fanouts.size(), request.expand);
    };
    if (request.importance == 0) {
      run(SharedPicker<Index>(workspace, request));
    } else {
      run(ImportantPicker(batch, request));
    }
  });
}

template SampleLayout sample_labor(Workspace&, const LaborRequest<int32_t>&);
template SampleLayout sample_labor(Workspace&, const LaborRequest<int64_t>&);

}  // namespace lg
