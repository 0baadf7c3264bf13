#include "orders/breadth_first.h"

#include <vector>

#include "common/error.h"
#include "common/fetch.h"
#include "common/prefetch.h"
#include "common/signals.h"

namespace lg {
namespace {

// Nodes ahead of the one at work: first where a list begins is fetched, then the list.
constexpr size_t kIndptrAhead = 16, kListAhead = 8;

template <class Index>
class Search {
 public:
  Search(const SearchRequest<Index>& request, int32_t* order, int32_t* tree)
      : request_(request), order_(order), tree_(tree), seen_((request.graph.num_nodes + 63) / 64) {}

  int64_t run() {
    int32_t number = 0;
    for (int64_t r = 0; r < request_.num_roots && !done(); ++r) {
      const int64_t root = request_.roots[r];
      if (!in_range(root, request_.graph.num_nodes)) {
        fail<SeedError>("roots[", r, "] is ", root, ", but the graph has ",
                        request_.graph.num_nodes, " nodes.");
      }
      const int64_t before = num_found_;
      grow_tree(Index(root), number);
      if (num_found_ > before) ++number;  // so that it never exceeds the number of seeds
    }
    return num_found_;
  }

 private:
  bool done() const { return num_found_ >= request_.num_seeds; }

  void grow_tree(Index root, int32_t number) {
    queue_.clear();
    reach(root, number);
    for (size_t head = 0; head < queue_.size() && !done(); ++head) {
      fetch_ahead(request_.graph, head);
      if (request_.reversed != nullptr) fetch_ahead(*request_.reversed, head);
      const Index node = queue_[head];
      reach_all(request_.graph, node, number);
      if (request_.reversed != nullptr) reach_all(*request_.reversed, node, number);
    }
  }

  void reach_all(const Csc<Index>& graph, Index node, int32_t number) {
    for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e) {
      reach(graph.indices[e], number);
    }
    signals_.after(1 + graph.indptr[node + 1] - graph.indptr[node]);
  }

  void reach(Index node, int32_t number) {
    uint64_t& word = seen_[uint64_t(node) / 64];
    const uint64_t bit = uint64_t(1) << (uint64_t(node) % 64);
    if (word & bit) return;
    word |= bit;
    queue_.push_back(node);
    const int32_t position = request_.position[node];
    if (position < 0 || done()) return;
    order_[num_found_] = position;
    tree_[num_found_] = number;
    ++num_found_;
  }

  LG_PREFETCHES void fetch_ahead(const Csc<Index>& graph, size_t head) {
    if (head + kIndptrAhead < queue_.size()) {
      fetch_line(&graph.indptr[queue_[head + kIndptrAhead]]);
    }
    if (head + kListAhead < queue_.size()) prefetch_neighbors(graph, queue_[head + kListAhead]);
  }

  const SearchRequest<Index>& request_;
  int32_t* order_;
  int32_t* tree_;
  std::vector<uint64_t> seen_;  // a bit a node: near the core for millions of nodes
  std::vector<Index> queue_;
  int64_t num_found_ = 0;
  SignalWatch signals_;
};

}  // namespace

template <class Index>
int64_t breadth_first(const SearchRequest<Index>& request, int32_t* order, int32_t* tree) {
  return Search<Index>(request, order, tree).run();
}

template int64_t breadth_first(const SearchRequest<int32_t>&, int32_t*, int32_t*);
template int64_t breadth_first(const SearchRequest<int64_t>&, int32_t*, int32_t*);

}  // namespace lg
