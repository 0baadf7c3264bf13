// batch.h: a mini-batch on its way into an arena: what all samplers have in common.
//
// Nodes are numbered in order of first occurrence, seeds first; destination j of any hop is
// nodes[j].
//
// Arena, from its start: nodes int64 [num_nodes]; from its end downward, hop by hop:
//   indptr int32 [num_dst + 1], indices int32 [num_edges], then, if asked for,
//   edge_ids int64 [num_edges], edge_weights float32 [num_edges], edge_types int32 [num_edges].
// Each array starts at a multiple of 64 bytes. Hops may share one such group, each a prefix of the
// next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "common/draw.h"
#include "common/workspace.h"

namespace lg {

constexpr int64_t kAlignment = 64;
constexpr int64_t kMaxLocal = 0x7fffffff;  // local ids and edge counts are int32

// The graph: in-neighbours of v are indices[indptr[v]] to indices[indptr[v + 1] - 1]. Checked at
// load: kernels trust it.
template <class Index>
struct Csc {
  const int64_t* indptr;
  const Index* indices;
  int64_t num_nodes;
  const int64_t* names = nullptr;  // of a part's nodes: their ids in the whole graph

  // In whose name a node draws, wherever its list lies. Below 2^48.
  int64_t name(int64_t node) const { return names ? names[node] : node; }
};

struct BatchRequest {
  const int64_t* seeds;
  int64_t num_seeds;
  uint64_t seed;
  uint32_t epoch, step;
  uint32_t hop;  // the number of the first one
  uint8_t* arena;
  int64_t arena_bytes;
  int64_t max_local = kMaxLocal;  // tests lower it
};

// What every sampler is given. A sampler's request is one of these, and its own settings.
template <class Index>
struct SamplerInput {
  Csc<Index> graph;
  BatchRequest batch;
};

// The draws of a batch's nodes at each of its hops, which are counted from 0.
template <class Index>
class BatchDraws {
 public:
  BatchDraws(const Csc<Index>& graph, const BatchRequest& request)
      : graph_(graph),
        key_(stream_key(request.seed, request.epoch)),
        step_(request.step),
        first_hop_(request.hop) {}

  NodeDraws of(int64_t node, uint32_t hop) const {
    return node_draws(key_, step_, first_hop_ + hop, graph_.name(node));
  }

 private:
  const Csc<Index>& graph_;
  const StreamKey key_;
  const uint32_t step_, first_hop_;
};

struct EdgeColumns {
  bool ids = false, weights = false, types = false;
};

struct HopLayout {
  int64_t num_dst, num_src, num_edges;
  int64_t indptr_offset = 0, indices_offset = 0;
  int64_t edge_ids_offset = -1, edge_weights_offset = -1, edge_types_offset = -1;  // -1: none
};

struct SampleLayout {
  int64_t num_nodes;
  std::vector<HopLayout> hops;
  int64_t free_begin, free_end;
  int64_t queries_offset = -1;  // of the number of each node's query, int32 [num_nodes]; -1: none
};

constexpr int64_t align_up(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}
constexpr int64_t align_down(int64_t bytes) { return bytes / kAlignment * kAlignment; }

// A batch's nodes are nodes of the graph, each once. Others: sample_typed/queries.h.
struct PlainIds {
  int64_t of_seed(int64_t, int64_t seed) const { return seed; }
  int64_t most_nodes(int64_t num_graph_nodes) const { return num_graph_nodes; }
  bool has_queries() const { return false; }
  void separate(const NodeList&, int32_t*) const {}

  int64_t node(int64_t value) const { return value; }
  int64_t query(int64_t) const { return 0; }

  // Of what flows through an edge stream: the position of an edge; then, where it led to.
  int64_t position(int64_t value) const { return value; }
  int64_t at_neighbor(int64_t, int64_t neighbor) const { return neighbor; }
};

// Every method may throw; the table is left clean in any case. Table: common/node_table.h.
template <class Table, class Ids = PlainIds>
class Batch {
 public:
  Batch(Workspace& workspace, Table& table, int64_t num_graph_nodes, const BatchRequest& request,
        EdgeColumns columns, const Ids& ids = Ids())
      : workspace_(workspace),
        table_(table),
        num_graph_nodes_(num_graph_nodes),
        request_(request),
        columns_(columns),
        ids_(ids),
        nodes_{reinterpret_cast<int64_t*>(request.arena), 0},
        top_(align_down(request.arena_bytes)) {}
  ~Batch() { table_.clear(nodes_); }
  Batch(const Batch&) = delete;

  int64_t num_nodes() const { return nodes_.count; }
  int64_t num_seeds() const { return request_.num_seeds; }
  const int64_t* nodes() const { return nodes_.ids; }
  Workspace& workspace() { return workspace_; }
  Table& table() { return table_; }
  const Ids& ids() const { return ids_; }
  Edges& edges() { return workspace_.edges; }

  // Throws SeedError: a seed out of range or repeated.
  void add_seeds() {
    reserve_nodes(request_.num_seeds);
    for (int64_t i = 0; i < request_.num_seeds; ++i) {
      const int64_t seed = request_.seeds[i];
      if (in_range(seed, num_graph_nodes_)) prefetch(ids_.of_seed(i, seed));
    }
    for (int64_t i = 0; i < request_.num_seeds; ++i) {
      const int64_t seed = request_.seeds[i];
      if (!in_range(seed, num_graph_nodes_)) {
        fail<SeedError>("seeds[", i, "] is ", seed, ", but the graph has ", num_graph_nodes_,
                        " nodes: seeds must lie in [0, ", num_graph_nodes_, ").");
      }
      const int32_t local = add(ids_.of_seed(i, seed));
      if (local != i) {
        fail<SeedError>(
            "seeds[", i, "] is ", seed, ", the same node as seeds[", local,
            "]. The seeds of a batch must be distinct: remove repeats, for example with "
            "numpy.unique.");
      }
    }
  }

  // Makes room for `num_new` more nodes; must come before they are added.
  void reserve_nodes(int64_t num_new) {
    const int64_t bound = std::min(nodes_.count + num_new, ids_.most_nodes(num_graph_nodes_));
    if (bound > request_.max_local) fail_beyond_int32("nodes");
    // add() writes one beyond the last node.
    reserve_bytes(node_bytes(bound + 1), 0);
    table_.reserve(nodes_, bound);
  }

  void prefetch(int64_t node) { table_.prefetch(node); }

  // The local id of a node of the graph.
  int32_t add(int64_t node) { return table_.insert(node, nodes_); }

  void add(const int64_t* nodes, int64_t count, int32_t* local) {
    insert_many(table_, nodes, count, nodes_, local);
  }

  // Calls loop(table, nodes), which may add nodes by table.insert(node, nodes); both stay in registers.
  template <class Loop>
  void with_table(const Loop& loop) {
    auto&& table = table_.in_registers();
    NodeList nodes = nodes_;
    loop(table, nodes);
    nodes_ = nodes;
  }

  // The local id of a node of the graph, or -1 if it is not in the batch.
  int32_t find(int64_t node) { return table_.find(node); }

  void check_num_edges(int64_t num_edges) const {
    if (num_edges > request_.max_local) fail_beyond_int32("edges");
  }

  // Notes a hop that ends with the edges and nodes known now.
  void end_hop(int64_t num_dst, int64_t num_edges) {
    hops_.push_back({num_dst, nodes_.count, num_edges});
  }

  // Moves `edges` into the arena: they serve the hops from `first_hop` to the last, which has the
  // most of them.
  void write_edges(size_t first_hop = 0) {
    const HopLayout& all = hops_.back();
    const int64_t num_edges = all.num_edges;
    HopLayout at{};
    int64_t span = 0;
    const auto place = [&span](bool wanted, int64_t num_bytes) {
      const int64_t offset = span;
      if (wanted) span += align_up(num_bytes);
      return wanted ? offset : -1;
    };
    at.indptr_offset = place(true, bytes<int32_t>(all.num_dst + 1));
    at.indices_offset = place(true, bytes<int32_t>(num_edges));
    at.edge_ids_offset = place(columns_.ids, bytes<int64_t>(num_edges));
    at.edge_weights_offset = place(columns_.weights, bytes<float>(num_edges));
    at.edge_types_offset = place(columns_.types, bytes<int32_t>(num_edges));
    reserve_bytes(node_bytes(nodes_.count), span);
    top_ -= span;
    for (int64_t* offset : {&at.indptr_offset, &at.indices_offset, &at.edge_ids_offset,
                            &at.edge_weights_offset, &at.edge_types_offset}) {
      if (*offset >= 0) *offset += top_;
    }
    const Edges& edges = workspace_.edges;
    write(at.indptr_offset, edges.indptr, all.num_dst + 1);
    write(at.indices_offset, edges.indices, num_edges);
    write(at.edge_ids_offset, edges.ids, num_edges);
    write(at.edge_weights_offset, edges.weights, num_edges);
    write(at.edge_types_offset, edges.types, num_edges);
    for (size_t i = first_hop; i < hops_.size(); ++i) {
      const HopLayout hop = hops_[i];
      hops_[i] = at;
      hops_[i].num_dst = hop.num_dst;
      hops_[i].num_src = hop.num_src;
      hops_[i].num_edges = hop.num_edges;
    }
  }

  // Ends the batch: no nodes come any more.
  SampleLayout layout() {
    SampleLayout layout{nodes_.count, std::move(hops_), align_up(node_bytes(nodes_.count)), top_};
    if (ids_.has_queries()) {
      layout.queries_offset = align_up(bytes<int64_t>(nodes_.count));
      table_.clear(nodes_);  // it knows them by what they are until here
      ids_.separate(nodes_, reinterpret_cast<int32_t*>(request_.arena + layout.queries_offset));
    }
    return layout;
  }

 private:
  template <class T>
  static int64_t bytes(int64_t count) {
    return count * int64_t(sizeof(T));
  }

  int64_t node_bytes(int64_t count) const {
    const int64_t ids = bytes<int64_t>(count);
    return ids_.has_queries() ? align_up(ids) + bytes<int32_t>(count) : ids;
  }

  void reserve_bytes(int64_t below, int64_t above) {
    const int64_t needed = align_up(below) + above;
    if (needed > top_) throw ArenaTooSmall{needed + align_down(request_.arena_bytes) - top_};
  }

  template <class T>
  void write(int64_t offset, const std::vector<T>& source, int64_t count) {
    if (offset >= 0 && count > 0) {
      std::memcpy(request_.arena + offset, source.data(), size_t(bytes<T>(count)));
    }
  }

  [[noreturn]] void fail_beyond_int32(const char* what) const {
    fail<SamplerConfigError>("A batch of ", request_.num_seeds, " seeds reaches more than ",
                             request_.max_local, " ", what,
                             ", beyond int32 local ids. Use a smaller batch or smaller fanouts.");
  }

  Workspace& workspace_;
  Table& table_;
  const int64_t num_graph_nodes_;
  const BatchRequest& request_;
  const EdgeColumns columns_;
  const Ids ids_;
  NodeList nodes_;
  int64_t top_;  // start of the hops in the arena
  std::vector<HopLayout> hops_;
};

// The most draws that a batch makes at one hop where nothing else bounds them, as with replacement and
// along walks: some seconds, and a few gigabytes.
constexpr int64_t kMaxHopDraws = int64_t(1) << 28;

[[noreturn]] inline void fail_beyond_draws(size_t hop, int64_t num_dst, int64_t num_draws,
                                           const char* what) {
  fail<SamplerConfigError>("Hop ", hop, " of a batch, of ", num_dst, " nodes, draws up to ",
                           num_draws, " ", what, ", but a hop draws at most ", kMaxHopDraws,
                           ". Use a smaller batch, or draw fewer for each node.");
}

inline void check_workspace(const Workspace& workspace, int64_t num_graph_nodes) {
  if (workspace.num_nodes < num_graph_nodes) {
    fail<SamplerConfigError>("The Workspace is for graphs of ", workspace.num_nodes,
                             " nodes, but this graph has ", num_graph_nodes,
                             ". Make a Workspace(num_nodes=", num_graph_nodes, ").");
  }
}

// Calls sample(batch) on a batch over a table that no other thread uses meanwhile.
template <class Table, class Sample, class Ids = PlainIds>
SampleLayout with_table(Workspace& workspace, Table& table, int64_t num_graph_nodes,
                        const BatchRequest& request, EdgeColumns columns, const Sample& sample,
                        const Ids& ids = Ids()) {
  Batch<Table, Ids> batch(workspace, table, num_graph_nodes, request, columns, ids);
  batch.add_seeds();
  sample(batch);
  return batch.layout();
}

// Calls sample(batch) on a batch over the workspace's table, which no other thread can use
// meanwhile.
template <class Sample>
SampleLayout with_batch(Workspace& workspace, int64_t num_graph_nodes, const BatchRequest& request,
                        EdgeColumns columns, const Sample& sample) {
  check_workspace(workspace, num_graph_nodes);
  const Workspace::Lease lease(workspace);
  return std::visit(
      [&](auto& table) {
        return with_table(workspace, table, num_graph_nodes, request, columns, sample);
      },
      workspace.table);
}

}  // namespace lg
