#include "partition/grow_blocks.h"

#include <algorithm>
#include <vector>

#include "common/error.h"
#include "common/huge_array.h"
#include "common/prefetch.h"
#include "common/signals.h"

namespace lg {
namespace {

// Nodes ahead of the one at work: first where a list begins is fetched, then the list.
constexpr int64_t kIndptrAhead = 16, kListAhead = 8;
constexpr int32_t kNone = -1;

template <class Index>
class Growth {
 public:
  Growth(const GrowRequest<Index>& request, int32_t* block_of, int32_t* sizes)
      : request_(request),
        num_nodes_(request.graph.num_nodes),
        block_of_(block_of),
        sizes_(sizes),
        queue_(size_t(num_nodes_)) {}

  int64_t run() {
    std::fill_n(block_of_, num_nodes_, kNone);
    start_at_sources();
    SignalWatch signals;
    while (head_ < tail_ || start_at_lowest()) {
      fetch_ahead();
      const Index node = queue_[size_t(head_++)];
      const int32_t block = block_of_[node];
      --num_queued_[size_t(block)];
      if (is_full(block)) continue;  // another has started in its place
      take_neighbors(node, block);
      signals.after(1 + request_.graph.indptr[node + 1] - request_.graph.indptr[node]);
      if (is_full(block) || num_queued_[size_t(block)] == 0) start_at_lowest();
    }
    return int64_t(num_queued_.size());
  }

 private:
  void start_at_sources() {
    for (int64_t i = 0; i < request_.num_sources; ++i) {
      const int64_t source = request_.sources[i];
      if (!in_range(source, num_nodes_)) {
        fail<SeedError>("sources[", i, "] is ", source, ", but the graph has ", num_nodes_,
                        " nodes.");
      }
      if (block_of_[source] == kNone) start(source);
    }
  }

  bool start_at_lowest() {
    while (lowest_ < num_nodes_ && block_of_[lowest_] != kNone) ++lowest_;
    if (lowest_ == num_nodes_) return false;
    start(lowest_);
    return true;
  }

  void start(int64_t source) {
    const int32_t block = int32_t(num_queued_.size());
    num_queued_.push_back(0);
    sizes_[block] = 0;
    take(Index(source), block);
  }

  void take_neighbors(Index node, int32_t block) {
    const Csc<Index>& graph = request_.graph;
    for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1] && !is_full(block); ++e) {
      const Index neighbor = graph.indices[e];
      if (block_of_[neighbor] == kNone) take(neighbor, block);
    }
  }

  void take(Index node, int32_t block) {
    block_of_[node] = block;
    ++sizes_[block];
    ++num_queued_[size_t(block)];
    queue_[size_t(tail_++)] = node;
  }

  bool is_full(int32_t block) const { return sizes_[block] >= request_.most; }

  LG_PREFETCHES void fetch_ahead() {
    if (head_ + kIndptrAhead < tail_) {
      prefetch_degree(request_.graph, queue_[size_t(head_ + kIndptrAhead)]);
    }
    if (head_ + kListAhead < tail_) {
      prefetch_neighbors(request_.graph, queue_[size_t(head_ + kListAhead)]);
    }
  }

  const GrowRequest<Index>& request_;
  const int64_t num_nodes_;
  int32_t* block_of_;
  int32_t* sizes_;
  HugeArray<Index> queue_;  // each node enters once
  int64_t head_ = 0, tail_ = 0;
  std::vector<int32_t> num_queued_;  // of each block: none left is how a search is known to end
  int64_t lowest_ = 0;               // all nodes below it are of some block
};

}  // namespace

template <class Index>
int64_t grow_blocks(const GrowRequest<Index>& request, int32_t* block_of, int32_t* sizes) {
  return Growth<Index>(request, block_of, sizes).run();
}

template int64_t grow_blocks(const GrowRequest<int32_t>&, int32_t*, int32_t*);
template int64_t grow_blocks(const GrowRequest<int64_t>&, int32_t*, int32_t*);

}  // namespace lg
