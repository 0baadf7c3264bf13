#include "sample_typed/sample_typed.h"

#include "sample_typed/pick_typed.h"
#include "sample_typed/row_table.h"

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
    if (graph.names) __builtin_prefetch(&graph.names[node]);
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

  const auto sample = [&](auto& table) {
    using Table = std::decay_t<decltype(table)>;
    using Ids = QueryIds<!std::is_same_v<Table, StampTable>>;
    const Ids ids(queries, queries.along_path ? &scratch.paths : nullptr);
    scratch.exclusion.start(queries, ids);
    return with_table(
        workspace, table, request.graph.num_nodes, request.batch, columns,
        [&](auto& batch) {
          std::visit(
              [&](const auto& runs) {
                using Runs = std::decay_t<decltype(runs)>;
                TypedPicker<Index, Runs, Ids> picker(scratch, request, runs, ids);
                NodeWise(batch, request.graph, picker, request.edge_ids,
                         PrefetchRuns<Runs, Ids>{runs, ids})
                    .run(size_t(request.num_hops), request.expand);
              },
              request.runs);
        },
        ids);
  };
  const auto sample_at_once = [&] {
    // Stamps are by node: of one query alone.
    const bool by_node = queries.num_queries == 1 && !queries.along_path;
    if (!by_node && std::holds_alternative<StampTable>(workspace.table)) {
      return sample(workspace.scratch<HashTable>());
    }
    return std::visit(sample, workspace.table);
  };
  RowTable& rows = workspace.scratch<RowTable>();
  const bool by_rows = rows.suits(queries, request.batch.num_seeds);
  if (by_rows) rows.start(queries);
  SampleLayout layout = by_rows ? sample(rows) : sample_at_once();
  rows.note(queries, layout.num_nodes);
  return layout;
}

template SampleLayout sample_typed(Workspace&, const SampleTypedRequest<int32_t>&);
template SampleLayout sample_typed(Workspace&, const SampleTypedRequest<int64_t>&);

}  // namespace lg
