#include "sample_hgt/sample_hgt.h"

#include "sample_hgt/node_budgets.h"
#include "sample_shadow/lay_subgraph.h"

namespace lg {
namespace {

struct HgtScratch {
  std::vector<int64_t> taken;  // nodes, hop by hop
};

// The nodes that all hops take, in scratch.taken; returns their number.
template <class Batch, class Index, class Offset>
int64_t take_nodes(Batch& batch, const HgtRequest<Index, Offset>& request, HgtScratch& scratch) {
  NodeBudgets<Batch, Index, Offset> budgets(batch, request);
  const int64_t num_types = request.runs.num_node_types;
  budgets.give(batch.nodes(), batch.num_nodes(), 0);
  int64_t num_taken = 0;
  for (uint32_t hop = 0; hop < request.num_hops; ++hop) {
    const int64_t first = num_taken;
    for (int64_t type = 0; type < num_types; ++type) {
      budgets.draw(type, request.num_samples[size_t(hop * num_types + type)], hop,
                   [&](int64_t node) {
                     reserve(scratch.taken, num_taken + 1)[num_taken] = node;
                     ++num_taken;
                   });
    }
    int64_t* taken = scratch.taken.data();
    std::sort(taken + first, taken + num_taken);
    if (hop + 1 < request.num_hops) budgets.give(taken + first, num_taken - first, hop + 1);
  }
  return num_taken;
}

// The types of the batch's edges, whose positions ascend within a destination, as its runs do.
template <class Batch, class Offset>
void put_types(Batch& batch, const DenseRuns<Offset>& runs, int64_t num_dst) {
  Edges& edges = batch.edges();
  const int64_t num_edges = edges.indptr[size_t(num_dst)];
  int32_t* types = reserve(edges.types, num_edges);
  const int64_t* ids = edges.ids.data();
  for (int64_t dst = 0, edge = 0; dst < num_dst; ++dst) {
    const int64_t end = edges.indptr[size_t(dst) + 1];
    if (edge == end) continue;
    runs.visit(batch.nodes()[dst], [&](int32_t type, int64_t start, uint32_t degree) {
      while (edge < end && ids[edge] < start + degree) types[edge++] = type;
    });
  }
}

}  // namespace

template <class Index, class Offset>
SampleLayout sample_hgt(Workspace& workspace, const HgtRequest<Index, Offset>& request) {
  const EdgeColumns columns{/*ids=*/request.edge_ids, /*weights=*/false, /*types=*/true};
  return with_batch(workspace, request.graph.num_nodes, request.batch, columns, [&](auto& batch) {
    HgtScratch& scratch = workspace.scratch<HgtScratch>();
    const int64_t num_taken = take_nodes(batch, request, scratch);
    batch.reserve_nodes(num_taken);
    for (int64_t i = 0; i < num_taken; ++i) batch.add(scratch.taken[size_t(i)]);
    const int64_t num_dst =
        lay_subgraph(batch, request.graph, request.num_layers, /*edge_ids=*/true);
    put_types(batch, request.runs, num_dst);
    batch.write_edges();
  });
}

template SampleLayout sample_hgt(Workspace&, const HgtRequest<int32_t, uint32_t>&);
template SampleLayout sample_hgt(Workspace&, const HgtRequest<int32_t, int64_t>&);
template SampleLayout sample_hgt(Workspace&, const HgtRequest<int64_t, uint32_t>&);
template SampleLayout sample_hgt(Workspace&, const HgtRequest<int64_t, int64_t>&);

}  // namespace lg
