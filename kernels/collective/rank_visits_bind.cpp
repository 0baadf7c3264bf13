#include "bind/bind.h"
#include "collective/rank_visits.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "rank_visits",
      [](Array<const int64_t> starts, Array<const int64_t> visits, int64_t num_neighbors,
         bool include_self, bool normalize, Array<int64_t> counts, Array<int64_t> neighbors,
         Array<float> weights) {
        const int64_t num_starts = int64_t(starts.size());
        return rank_visits({starts.data(), visits.data(), num_starts,
                            num_starts == 0 ? 0 : int64_t(visits.size()) / num_starts,
                            num_neighbors, include_self, normalize},
                           counts.data(), neighbors.data(), weights.data());
      },
      "starts"_a.noconvert(), "visits"_a.noconvert(), "num_neighbors"_a, "include_self"_a,
      "normalize"_a, "counts"_a.noconvert(), "neighbors"_a.noconvert(), "weights"_a.noconvert(),
      NoGil());
}

}  // namespace lg::bind
