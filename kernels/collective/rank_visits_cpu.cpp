#include "collective/rank_visits.h"

#include <vector>

#include "common/error.h"
#include "common/signals.h"
#include "sample_walks/visit_counts.h"

namespace lg {

int64_t rank_visits(const VisitRequest& request, int64_t* counts, int64_t* neighbors,
                    float* weights) {
  VisitCounts ranking;
  ranking.reserve_visits(request.num_visits);
  std::vector<int64_t> seen(request.num_visits);
  int64_t num_edges = 0;
  SignalWatch signals;
  for (int64_t d = 0; d < request.num_starts; ++d) {
    const int64_t* visits = request.visits + d * request.num_visits;
    int64_t num_seen = 0;
    signals.after(request.num_visits);
    for (int64_t i = 0; i < request.num_visits; ++i) {
      const int64_t node = visits[i];
      if (!in_range(node + 1, (int64_t(1) << 48) + 1)) {
        fail<SamplerConfigError>("visits[", d, "][", i, "] is ", node,
                                 ", but must lie in [-1, 2**48).");
      }
      seen[num_seen] = node;
      num_seen += node >= 0 && (request.include_self || node != request.starts[d]);
    }
    counts[d] = ranking.find_top(seen.data(), num_seen, request.num_neighbors, nullptr);
    ranking.write_top(counts[d], request.normalize, neighbors + num_edges, weights + num_edges);
    num_edges += counts[d];
  }
  return num_edges;
}

}  // namespace lg
