// rank_visits.h: the neighbours that walks chose, where the walks went elsewhere: the second half of
// sample_walks.
#pragma once

#include <cstdint>

namespace lg {

struct VisitRequest {
  const int64_t* starts;  // the destinations, by their names
  const int64_t* visits;  // [num_starts][num_visits], names; -1: none
  int64_t num_starts, num_visits;
  int64_t num_neighbors;
  bool include_self, normalize;
};

//   out  counts[num_starts]
//        neighbors, weights   of num_starts * min(num_neighbors, num_visits) entries at most
//   ret  how many there are
// Throws SamplerConfigError: a visit not in [-1, 2^48).
int64_t rank_visits(const VisitRequest& request, int64_t* counts, int64_t* neighbors,
                    float* weights);

}  // namespace lg
