#include "collective/add_hop.h"

#include <algorithm>

#include "common/signals.h"

namespace lg {
namespace {

// So many table entries are fetched while those before are read.
constexpr int64_t kAhead = 256;

void check_counts(const ChosenEdges& edges, int64_t num_dst) {
  int64_t left = edges.num_edges;
  for (int64_t i = 0; i < num_dst; ++i) {
    if (!in_range(edges.counts[i], left + 1)) {
      fail<SamplerConfigError>(
          "add_hop: counts[", i, "] is ", edges.counts[i], ", but ", left,
          " neighbors are left: counts are at least 0, and sum to their number, ", edges.num_edges,
          ".");
    }
    left -= edges.counts[i];
  }
  if (left != 0) {
    fail<SamplerConfigError>("add_hop: counts leaves ", left, " of ", edges.num_edges,
                             " neighbors over: counts sum to their number.");
  }
}

template <class T>
void keep(std::vector<T>& column, const T* values, int64_t count) {
  if (values != nullptr) std::copy_n(values, count, reserve(column, count));
}

template <class Batch>
class HopAdder {
 public:
  HopAdder(Batch& batch, int64_t num_graph_nodes, const ChosenEdges& edges)
      : batch_(batch), num_graph_nodes_(num_graph_nodes), edges_(edges) {}

  void run() {
    const int64_t num_dst = batch_.num_nodes(), num_edges = edges_.num_edges;
    check_counts(edges_, num_dst);
    batch_.check_num_edges(num_edges);
    Edges& edges = batch_.edges();
    int32_t* indptr = reserve(edges.indptr, num_dst + 1);
    indptr[0] = 0;
    for (int64_t i = 0; i < num_dst; ++i) indptr[i + 1] = indptr[i] + int32_t(edges_.counts[i]);
    int32_t* local = reserve(edges.indices, num_edges);
    fetch(0);
    SignalWatch signals;
    for (int64_t begin = 0; begin < num_edges; begin += kAhead) {
      fetch(begin + kAhead);
      const int64_t count = std::min(kAhead, num_edges - begin);
      batch_.reserve_nodes(count);
      batch_.add(edges_.neighbors + begin, count, local + begin);
      signals.after(count);
    }
    keep(edges.ids, edges_.ids, num_edges);
    keep(edges.weights, edges_.weights, num_edges);
    keep(edges.types, edges_.types, num_edges);
    batch_.end_hop(num_dst, num_edges);
    batch_.write_edges();
  }

 private:
  // Checks kAhead neighbours, and fetches their table entries.
  void fetch(int64_t begin) {
    const int64_t end = std::min(begin + kAhead, edges_.num_edges);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t node = edges_.neighbors[i];
      if (!in_range(node, num_graph_nodes_)) {
        fail<SamplerConfigError>(
            "add_hop: neighbors[", i, "] is ", node, ", but the graph has ", num_graph_nodes_,
            " nodes. Neighbours are node ids: graph.indices[edge_ids], not positions in an "
            "adjacency list.");
      }
      batch_.prefetch(node);
    }
  }

  Batch& batch_;
  const int64_t num_graph_nodes_;
  const ChosenEdges& edges_;
};

}  // namespace

SampleLayout add_hop(Workspace& workspace, int64_t num_graph_nodes, const BatchRequest& batch,
                     const ChosenEdges& edges) {
  const EdgeColumns columns{edges.ids != nullptr, edges.weights != nullptr, edges.types != nullptr};
  return with_batch(workspace, num_graph_nodes, batch, columns,
                    [&](auto& arena) { HopAdder(arena, num_graph_nodes, edges).run(); });
}

}  // namespace lg
