#include "induced_edges/induced_edges.h"

#include "induced_edges/induce.h"

namespace lg {
namespace {

struct ScopeMemory {
  std::vector<int64_t> ids;
};

// The nodes of a group that a table knows, which forgets them with it.
template <class Table>
class Scope {
 public:
  Scope(Table& table, ScopeMemory& memory, int64_t num_nodes)
      : table_(table), list_{reserve(memory.ids, num_nodes + 1), 0} {
    table.reserve(list_, num_nodes);
  }
  ~Scope() { table_.clear(list_); }
  Scope(const Scope&) = delete;

  int32_t add(int64_t node) { return table_.insert(node, list_); }

 private:
  Table& table_;
  NodeList list_;  // with room for one more, to which tables write
};

template <class Index>
void check_groups(const InducedEdgesRequest<Index>& request) {
  const int64_t* ptr = request.ptr;
  if (ptr[0] != 0 || ptr[request.num_groups] != request.num_nodes) {
    fail<SeedError>("ptr begins with ", ptr[0], " and ends with ", ptr[request.num_groups],
                    ", but must begin with 0 and end with the number of nodes, ", request.num_nodes,
                    ".");
  }
  for (int64_t g = 0; g < request.num_groups; ++g) {
    if (ptr[g] > ptr[g + 1]) {
      fail<SeedError>("ptr[", g + 1, "] is ", ptr[g + 1], ", less than ptr[", g, "] = ", ptr[g],
                      ": group g has nodes[ptr[g]:ptr[g + 1]], so that ptr must never fall.");
    }
  }
}

template <class Table, class Index>
void induce_groups(Workspace& workspace, Table& table, const InducedEdgesRequest<Index>& request,
                   const TakeEdges& take) {
  const auto check = [&](int64_t num_edges) {
    if (num_edges <= request.max_local) return;
    fail<SamplerConfigError>("the nodes have more than ", request.max_local,
                             " edges among them, beyond int32. Give fewer at a time.");
  };
  const int64_t num_graph_nodes = request.graph.num_nodes;
  ScopeMemory& memory = workspace.scratch<ScopeMemory>();
  Inducer<Table, Index, decltype(check)> inducer(request.graph, workspace.edges, true, check);
  for (int64_t g = 0; g < request.num_groups; ++g) {
    const int64_t first = request.ptr[g], end = request.ptr[g + 1];
    const int64_t* nodes = request.nodes + first;
    Scope<Table> scope(table, memory, end - first);
    for (int64_t i = 0; i < end - first; ++i) {
      if (in_range(nodes[i], num_graph_nodes)) table.prefetch(nodes[i]);
    }
    for (int64_t i = 0; i < end - first; ++i) {
      if (!in_range(nodes[i], num_graph_nodes)) {
        fail<SeedError>("nodes[", first + i, "] is ", nodes[i], ", but the graph has ",
                        num_graph_nodes, " nodes: ids must lie in [0, ", num_graph_nodes, ").");
      }
      const int32_t local = scope.add(nodes[i]);
      if (local != i) {
        fail<SeedError>("nodes[", first + i, "] is ", nodes[i], ", the same node as nodes[",
                        first + local, "] of its group. Give each node of a group once.");
      }
    }
    inducer.add(table, nodes, end - first, end - first, first);
  }
  take(workspace.edges, inducer.num_edges());
}

}  // namespace

template <class Index>
void induced_edges(Workspace& workspace, const InducedEdgesRequest<Index>& request,
                   const TakeEdges& take) {
  check_workspace(workspace, request.graph.num_nodes);
  if (request.num_nodes > request.max_local) {
    fail<SamplerConfigError>("there are ", request.num_nodes, " nodes, more than ",
                             request.max_local, ", beyond int32 places. Give fewer at a time.");
  }
  check_groups(request);
  const Workspace::Lease lease(workspace);
  // Of small groups a small table stays in cache; and stamps count few batches before all are cleared.
  if (request.num_groups > 1) {
    return induce_groups(workspace, workspace.scratch<HashTable>(), request, take);
  }
  std::visit([&](auto& table) { induce_groups(workspace, table, request, take); }, workspace.table);
}

template void induced_edges(Workspace&, const InducedEdgesRequest<int32_t>&, const TakeEdges&);
template void induced_edges(Workspace&, const InducedEdgesRequest<int64_t>&, const TakeEdges&);

}  // namespace lg
