// induce.h: the edges among some nodes of a graph, its scope.
//
// Destinations keep those in-neighbours that are in the scope, in adjacency order, repeated edges and
// loops included. Costs a look-up for each in-neighbour of each destination, in the scope or not;
// except at hubs, whose lists are much longer than the scope: where such a list ascends, each node of
// the scope is searched for in it. Whether it does is read off the list, once for all scopes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/batch.h"
#include "common/scan_neighbors.h"
#include "common/signals.h"

namespace lg {

// Table: common/node_table.h. check(num_edges) throws where these are too many.
template <class Table, class Index, class Check>
class Inducer {
 public:
  // Edges go to `edges`, which the caller reads when all scopes were added.
  Inducer(const Csc<Index>& graph, Edges& edges, bool edge_ids, const Check& check)
      : graph_(graph), edges_(edges), edge_ids_(edge_ids), check_(check) {
    reserve(edges.indptr, 1)[0] = 0;
  }

  int64_t num_edges() const { return num_edges_; }

  // Adds the edges into the first num_dst nodes of a scope, which `table` numbers as `nodes` does.
  // Their numbers in `edges`, as destinations and as sources, are `first` more than those.
  void add(Table& table, const int64_t* nodes, int64_t num_nodes, int64_t num_dst,
           int64_t first = 0) {
    int32_t* indptr = reserve(edges_.indptr, first + num_dst + 1) + first + 1;
    const int64_t longest = kMuchLonger * num_nodes;
    ascending_.clear();
    const auto prefetch = [&](int64_t neighbor) { table.prefetch(neighbor); };
    const auto visit = [&](const NeighborRun& run) {
      signals_.after(1 + std::min(run.end - run.begin, longest));
      if (run.end - run.begin <= longest) {
        look_up(table, run.begin, run.end, int32_t(first));
      } else if (ascends(nodes[run.index])) {
        search(nodes, num_nodes, run, int32_t(first));
      } else {
        look_up_in_parts(table, run, int32_t(first));
      }
      indptr[run.index] = int32_t(num_edges_);
    };
    NeighborScan(graph_, nodes, num_dst, longest).run(prefetch, visit);
  }

 private:
  static constexpr int64_t kMuchLonger = 64;
  static constexpr int64_t kPart = 512;
  static constexpr size_t kKnownHubs = 256;

  struct Hub {
    int64_t node = -1;
    bool ascends = false;
  };

  void look_up(Table& table, int64_t begin, int64_t end, int32_t first) {
    // Whether a neighbour is in the scope cannot be predicted: all are written, and some stay.
    const int64_t room = num_edges_ + end - begin;
    int32_t* indices = reserve(edges_.indices, room);
    int64_t* ids = edge_ids_ ? reserve(edges_.ids, room) : nullptr;
    int64_t num_edges = num_edges_;
    for (int64_t position = begin; position < end; ++position) {
      const int32_t local = table.find(graph_.indices[position]);
      indices[num_edges] = first + local;
      if (ids) ids[num_edges] = position;
      num_edges += local >= 0;
    }
    check_(num_edges);
    num_edges_ = num_edges;
  }

  // A list that the scan has not prefetched.
  void look_up_in_parts(Table& table, const NeighborRun& run, int32_t first) {
    int64_t fetched = run.begin;
    for (int64_t begin = run.begin; begin < run.end; begin += kPart) {
      for (const int64_t end = std::min(begin + 2 * kPart, run.end); fetched < end; ++fetched) {
        table.prefetch(graph_.indices[fetched]);
      }
      look_up(table, begin, std::min(begin + kPart, run.end), first);
      signals_.after(kPart);
    }
  }

  // Both ascend, so that each node is searched for behind the one before it.
  void search(const int64_t* nodes, int64_t num_nodes, const NeighborRun& run, int32_t first) {
    if (ascending_.empty()) {
      for (int64_t i = 0; i < num_nodes; ++i) ascending_.emplace_back(nodes[i], int32_t(i));
      std::sort(ascending_.begin(), ascending_.end());
    }
    const Index* const end = graph_.indices + run.end;
    const Index* at = graph_.indices + run.begin;
    const auto below = [](Index neighbor, int64_t node) { return neighbor < node; };
    for (const auto& [node, local] : ascending_) {
      at = std::lower_bound(at, end, node, below);
      for (; at < end && *at == node; ++at, ++num_edges_) {
        reserve(edges_.indices, num_edges_ + 1)[num_edges_] = first + local;
        if (edge_ids_) reserve(edges_.ids, num_edges_ + 1)[num_edges_] = at - graph_.indices;
      }
    }
    check_(num_edges_);
  }

  // Scopes meet the same hubs again and again.
  bool ascends(int64_t node) {
    hubs_.resize(kKnownHubs);
    Hub& hub = hubs_[size_t(node) % kKnownHubs];
    if (hub.node != node) hub = {node, list_ascends(node)};
    return hub.ascends;
  }

  // Parts without a branch inside vectorise.
  bool list_ascends(int64_t node) const {
    const int64_t end = graph_.indptr[node + 1];
    for (int64_t begin = graph_.indptr[node] + 1; begin < end; begin += kPart) {
      bool falls = false;
      for (int64_t p = begin; p < std::min(begin + kPart, end); ++p) {
        falls |= graph_.indices[p] < graph_.indices[p - 1];
      }
      if (falls) return false;
    }
    return true;
  }

  const Csc<Index>& graph_;
  Edges& edges_;
  const bool edge_ids_;
  const Check check_;
  int64_t num_edges_ = 0;
  std::vector<std::pair<int64_t, int32_t>> ascending_;  // the scope's nodes, once a hub asks
  std::vector<Hub> hubs_;                               // by node, the last that was met
  SignalWatch signals_;
};

}  // namespace lg
