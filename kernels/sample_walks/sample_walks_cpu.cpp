#include "sample_walks/sample_walks.h"

#include <algorithm>
#include <vector>

#include "common/fetch.h"
#include "common/prefetch.h"
#include "random_walk/walk_group.h"
#include "sample_walks/visit_counts.h"

namespace lg {
namespace {

// Destinations pass two stages, a chunk at a time and one chunk apart, so that the table entries
// that `relabel` reads were prefetched meanwhile.
template <class Batch, class Index, class Lists>
class WalkWise {
 public:
  WalkWise(Batch& batch, const WalkSampleRequest<Index, Lists>& request)
      : batch_(batch),
        request_(request),
        scratch_(batch.workspace().template scratch<Scratch>()),
        walks_(request.graph, request.lists, request.walks, request.batch.seed, request.batch.epoch,
               request.batch.step),
        max_visits_(request.walks.length / request.lists.round * request.walks.num_walks),
        chunk_size_(
            std::clamp(kMaxWalks / request.walks.num_walks, int64_t(1), kMaxVisits / max_visits_)) {
    scratch_.counts.reserve_visits(max_visits_);
    reserve(scratch_.visits, chunk_size_ * max_visits_);
    reserve(scratch_.num_visits, chunk_size_);
    for (int64_t i = 0; i < kMaxWalks; ++i) owner_[i] = i / request.walks.num_walks;
  }

  void run() {
    int64_t first = 0;  // of the destinations to expand
    for (int64_t hop = 0; hop < request_.num_hops; ++hop) {
      const int64_t num_dst = batch_.num_nodes();
      if (request_.expand == Expand::kAll) num_edges_ = num_relabelled_ = first = 0;
      run_hop(request_.batch.hop + uint32_t(hop), first, num_dst);
      batch_.end_hop(num_dst, num_edges_);
      if (request_.expand == Expand::kAll) batch_.write_edges(size_t(hop));
      first = num_dst;
    }
    if (request_.expand == Expand::kNew && request_.num_hops > 0) batch_.write_edges();
  }

 private:
  struct Scratch {
    VisitCounts counts;
    std::vector<int64_t> visits;      // by destination of the chunk, max_visits_ each
    std::vector<int64_t> num_visits;  // by destination of the chunk
    std::vector<int64_t> neighbors;   // that wait for their local ids
  };

  void run_hop(uint32_t hop, int64_t first, int64_t end) {
    check_num_steps(hop - request_.batch.hop, end - first);
    reserve(batch_.edges().indptr, end + 1)[first] = int32_t(num_edges_);
    for (int64_t begin = first; begin < end; begin += chunk_size_) {
      const int64_t size = std::min(chunk_size_, end - begin);
      walk(hop, begin, size);
      relabel();
      choose(begin, size);
    }
    relabel();
  }

  void check_num_steps(size_t hop, int64_t num_dst) const {
    const int64_t each = request_.walks.num_walks * request_.walks.length;
    if (each <= kMaxHopDraws / std::max<int64_t>(num_dst, 1)) return;
    fail_beyond_draws(hop, num_dst, num_dst * each, "steps of walks");
  }

  // The visits of each destination of a chunk.
  void walk(uint32_t hop, int64_t begin, int64_t size) {
    const int64_t* starts = batch_.nodes() + begin;
    int64_t *visits = scratch_.visits.data(), *num_visits = scratch_.num_visits.data();
    std::fill_n(num_visits, size, 0);
    // What does not count is overwritten by what follows; there is room for it, as it is never last.
    const auto visit = [&](int64_t i, int64_t, int64_t node, bool ends_round) {
      const int64_t d = owner_[i];
      visits[d * max_visits_ + num_visits[d]] = node;
      num_visits[d] += ends_round & (request_.include_self | (node != starts[d]));
    };
    // Walks beyond kMaxWalks are all of the one destination of the chunk, whose number is 0.
    const int64_t num_walks = size * request_.walks.num_walks;
    for (int64_t i = 0; i < num_walks; i += kMaxWalks) {
      walks_.run(starts, i, std::min(kMaxWalks, num_walks - i), hop, visit);
    }
    if (request_.graph.names) prefetch_names(size);
  }

  // choose() orders visits by them.
  LG_PREFETCHES void prefetch_names(int64_t size) const {
    for (int64_t d = 0; d < size; ++d) {
      const int64_t* visits = scratch_.visits.data() + d * max_visits_;
      for (int64_t i = 0; i < scratch_.num_visits[d]; ++i) {
        fetch_line(&request_.graph.names[visits[i]]);
      }
    }
  }

  // The neighbours and weights of each destination of a chunk.
  void choose(int64_t begin, int64_t size) {
    const int64_t max_top = std::min(request_.num_neighbors, max_visits_);
    const int64_t bound = num_edges_ + size * max_top;
    Edges& edges = batch_.edges();
    float* weights = reserve(edges.weights, bound);
    int64_t* neighbors = reserve(scratch_.neighbors, size * max_top);
    VisitCounts& counts = scratch_.counts;
    for (int64_t d = 0; d < size; ++d) {
      const int64_t num_top =
          counts.find_top(&scratch_.visits[d * max_visits_], scratch_.num_visits[d],
                          request_.num_neighbors, request_.graph.names);
      counts.write_top(num_top, request_.normalize, neighbors, weights + num_edges_);
      for (int64_t i = 0; i < num_top; ++i) batch_.prefetch(neighbors[i]);
      neighbors += num_top;
      num_edges_ += num_top;
      edges.indptr[begin + d + 1] = int32_t(num_edges_);
    }
    batch_.check_num_edges(num_edges_);
  }

  void relabel() {
    const int64_t count = num_edges_ - num_relabelled_;
    batch_.reserve_nodes(count);
    int32_t* indices = reserve(batch_.edges().indices, num_edges_) + num_relabelled_;
    batch_.add(scratch_.neighbors.data(), count, indices);
    num_relabelled_ = num_edges_;
  }

  Batch& batch_;
  const WalkSampleRequest<Index, Lists>& request_;
  Scratch& scratch_;
  WalkGroup<Index, Lists> walks_;
  const int64_t max_visits_;  // of one destination
  const int64_t chunk_size_;  // destinations whose walks are under way together
  int64_t owner_[kMaxWalks];  // by walk of a chunk: its destination
  int64_t num_edges_ = 0, num_relabelled_ = 0;
};

}  // namespace

template <class Index, class Lists>
SampleLayout sample_walks(Workspace& workspace, const WalkSampleRequest<Index, Lists>& request) {
  const EdgeColumns columns{/*ids=*/false, /*weights=*/true};
  return with_batch(workspace, request.graph.num_nodes, request.batch, columns,
                    [&](auto& batch) { WalkWise(batch, request).run(); });
}

template SampleLayout sample_walks(Workspace&, const WalkSampleRequest<int32_t>&);
template SampleLayout sample_walks(Workspace&, const WalkSampleRequest<int64_t>&);
template SampleLayout sample_walks(Workspace&,
                                   const WalkSampleRequest<int32_t, RunLists<uint32_t>>&);
template SampleLayout sample_walks(Workspace&,
                                   const WalkSampleRequest<int32_t, RunLists<int64_t>>&);
template SampleLayout sample_walks(Workspace&,
                                   const WalkSampleRequest<int64_t, RunLists<uint32_t>>&);
template SampleLayout sample_walks(Workspace&,
                                   const WalkSampleRequest<int64_t, RunLists<int64_t>>&);

}  // namespace lg
