// with_queries.h: a batch over the table of nodes that suits what its seeds ask for.
#pragma once

#include <type_traits>
#include <variant>

#include "common/batch.h"
#include "sample_typed/queries.h"
#include "sample_typed/row_table.h"

namespace lg {

// Calls sample(batch, ids) on a batch over a table of the workspace, which no other thread can use meanwhile.
template <class Sample>
SampleLayout with_queries(Workspace& workspace, const Queries& queries, const PathQueries* paths,
                          int64_t num_graph_nodes, const BatchRequest& request, EdgeColumns columns,
                          const Sample& sample) {
  const auto sample_over = [&](auto& table) {
    using Table = std::decay_t<decltype(table)>;
    using Ids = QueryIds<!std::is_same_v<Table, StampTable>>;
    const Ids ids(queries, paths);
    return with_table(
        workspace, table, num_graph_nodes, request, columns,
        [&](auto& batch) { sample(batch, ids); }, ids);
  };
  const auto sample_at_once = [&] {
    // Stamps are by node: of one query alone.
    const bool by_node = queries.num_queries == 1 && !queries.along_path;
    if (!by_node && std::holds_alternative<StampTable>(workspace.table)) {
      return sample_over(workspace.scratch<HashTable>());
    }
    return std::visit(sample_over, workspace.table);
  };
  RowTable& rows = workspace.scratch<RowTable>();
  const bool by_rows = rows.suits(queries, request.num_seeds);
  if (by_rows) rows.start(queries);
  SampleLayout layout = by_rows ? sample_over(rows) : sample_at_once();
  rows.note(queries, layout.num_nodes);
  return layout;
}

}  // namespace lg
