#include "sample_labor/sample_labor.h"

#include "sample_labor/pick_important.h"
#include "sample_labor/pick_shared.h"
#include "sample_typed/runs.h"

namespace lg {

template <class Index, class Runs>
SampleLayout sample_labor(Workspace& workspace, const LaborRequest<Index, Runs>& request) {
  const bool weighted = request.importance != 0 || request.estimate == Estimate::kSum;
  const EdgeColumns columns{/*ids=*/request.edge_ids, /*weights=*/weighted,
                            /*types=*/kHasTypes<Runs>};
  return with_batch(workspace, request.graph.num_nodes, request.batch, columns, [&](auto& batch) {
    const auto run = [&](auto picker) {
      NodeWise(batch, request.graph, picker, request.edge_ids)
          .run(request.fanouts.size() / size_t(request.num_types), request.expand);
    };
    if constexpr (!kHasTypes<Runs>) {
      if (request.importance != 0) return run(ImportantPicker(batch, request));
    }
    run(SharedPicker(workspace, request));
  });
}

template SampleLayout sample_labor(Workspace&, const LaborRequest<int32_t>&);
template SampleLayout sample_labor(Workspace&, const LaborRequest<int64_t>&);
template SampleLayout sample_labor(Workspace&, const LaborRequest<int32_t, SparseRuns>&);
template SampleLayout sample_labor(Workspace&, const LaborRequest<int64_t, SparseRuns>&);
template SampleLayout sample_labor(Workspace&, const LaborRequest<int32_t, DenseRuns<uint32_t>>&);
template SampleLayout sample_labor(Workspace&, const LaborRequest<int32_t, DenseRuns<int64_t>>&);
template SampleLayout sample_labor(Workspace&, const LaborRequest<int64_t, DenseRuns<uint32_t>>&);
template SampleLayout sample_labor(Workspace&, const LaborRequest<int64_t, DenseRuns<int64_t>>&);

}  // namespace lg
