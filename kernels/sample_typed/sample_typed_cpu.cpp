#include "sample_typed/sample_typed.h"

#include "common/fetch.h"
#include "sample_typed/pick_typed.h"
#include "sample_typed/with_queries.h"

namespace lg {
namespace {

template <class Runs, class Ids>
struct PrefetchRuns {
  const Runs& runs;
  const Ids& ids;

  template <class Index>
  LG_PREFETCHES void operator()(const Csc<Index>& graph, int64_t value) const {
    const int64_t node = ids.node(value);
    prefetch_runs(runs, node);
    if (graph.names) fetch_line(&graph.names[node]);
  }
};

}  // namespace

template <class Index>
SampleLayout sample_typed(Workspace& workspace, const SampleTypedRequest<Index>& request) {
  check_workspace(workspace, request.graph.num_nodes);
  const Workspace::Lease lease(workspace);
  TypedScratch& scratch = workspace.scratch<TypedScratch>();
  const Queries& queries = request.queries;
  if (queries.along_path) scratch.paths.start(queries);
  EdgeColumns columns;
  columns.ids = request.edge_ids;
  columns.types = !request.is_untyped;

  return with_queries(workspace, queries, queries.along_path ? &scratch.paths : nullptr,
                      request.graph.num_nodes, request.batch, columns,
                      [&](auto& batch, const auto& ids) {
                        using Ids = std::decay_t<decltype(ids)>;
                        scratch.exclusion.start(queries, ids);
                        std::visit(
                            [&](const auto& runs) {
                              using Runs = std::decay_t<decltype(runs)>;
                              TypedPicker<Index, Runs, Ids> picker(scratch, request, runs, ids);
                              NodeWise(batch, request.graph, picker, request.edge_ids,
                                       PrefetchRuns<Runs, Ids>{runs, ids})
                                  .run(size_t(request.num_hops), request.expand);
                            },
                            request.runs);
                      });
}

template SampleLayout sample_typed(Workspace&, const SampleTypedRequest<int32_t>&);
template SampleLayout sample_typed(Workspace&, const SampleTypedRequest<int64_t>&);

}  // namespace lg
