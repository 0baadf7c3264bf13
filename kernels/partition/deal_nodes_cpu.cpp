#include "partition/deal_nodes.h"

#include <algorithm>
#include <vector>

#include "common/error.h"
#include "common/fetch.h"
#include "common/signals.h"

namespace lg {
namespace {

__extension__ using uint128_t = unsigned __int128;

struct Load {
  int64_t nodes = 0, seeds = 0;
  int64_t neighbors = 0;  // of the node at work
};

template <class Index>
class Deal {
 public:
  Deal(const DealRequest<Index>& request, int32_t* part_of)
      : request_(request), part_of_(part_of), loads_(size_t(request.num_parts)) {}

  int64_t run() {
    check_parts();
    int64_t num_changed = 0;
    SignalWatch signals;
    for (int64_t node = 0; node < request_.graph.num_nodes; ++node) {
      count_neighbors(node);
      signals.after(1 + request_.graph.indptr[node + 1] - request_.graph.indptr[node]);
      const bool is_seed = request_.is_seed[node] != 0;
      const int32_t part = best_part(is_seed);
      ++loads_[size_t(part)].nodes;
      loads_[size_t(part)].seeds += is_seed;
      num_changed += part_of_[node] != part;
      part_of_[node] = part;
      for (Load& load : loads_) load.neighbors = 0;
    }
    return num_changed;
  }

 private:
  void check_parts() const {
    for (int64_t node = 0; node < request_.graph.num_nodes; ++node) {
      if (part_of_[node] != -1 && !in_range(part_of_[node], request_.num_parts)) {
        fail<GraphFormatError>("part_of[", node, "] is ", part_of_[node], ", but there are ",
                               request_.num_parts, " parts, from 0 on.");
      }
    }
  }

  void count_neighbors(int64_t node) {
    constexpr int64_t kAhead = 32;  // edges: parts of neighbours lie anywhere
    const Csc<Index>& graph = request_.graph;
    const int64_t last = graph.indptr[graph.num_nodes] - 1;
    for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e) {
      fetch_line(&part_of_[graph.indices[std::min(e + kAhead, last)]]);
      const int32_t part = part_of_[graph.indices[e]];
      if (part >= 0) ++loads_[size_t(part)].neighbors;
    }
  }

  int32_t best_part(bool is_seed) const {
    int32_t best = -1;
    uint128_t best_score = 0, best_room = 0;
    for (size_t i = 0; i < loads_.size(); ++i) {
      const Load& load = loads_[i];
      const int64_t nodes_left = request_.node_capacity - load.nodes;
      const int64_t seeds_left = is_seed ? request_.seed_capacity - load.seeds : 1;
      if (nodes_left <= 0 || seeds_left <= 0) continue;
      const uint128_t room = uint128_t(nodes_left) * uint64_t(seeds_left);
      const uint128_t score = room * uint64_t(load.neighbors);
      if (best >= 0 && (score < best_score || (score == best_score && room <= best_room))) continue;
      best = int32_t(i), best_score = score, best_room = room;
    }
    return best >= 0 ? best : emptiest(is_seed);
  }

  int32_t emptiest(bool is_seed) const {
    const auto fuller = [is_seed](const Load& a, const Load& b) {
      return is_seed ? a.seeds < b.seeds : a.nodes < b.nodes;
    };
    return int32_t(std::min_element(loads_.begin(), loads_.end(), fuller) - loads_.begin());
  }

  const DealRequest<Index>& request_;
  int32_t* part_of_;
  std::vector<Load> loads_;
};

}  // namespace

template <class Index>
int64_t deal_nodes(const DealRequest<Index>& request, int32_t* part_of) {
  return Deal<Index>(request, part_of).run();
}

template int64_t deal_nodes(const DealRequest<int32_t>&, int32_t*);
template int64_t deal_nodes(const DealRequest<int64_t>&, int32_t*);

}  // namespace lg
