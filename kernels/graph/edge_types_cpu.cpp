#include "graph/edge_types.h"

#include <algorithm>
#include <vector>

#include "common/signals.h"

namespace lg {
namespace {

// Calls visit(first, last) with the positions of each node's edges.
template <class Visit>
void for_lists(const int64_t* indptr, int64_t num_nodes, const Visit& visit) {
  SignalWatch signals;
  for (int64_t v = 0; v < num_nodes; ++v) {
    signals.after(1 + (indptr[v + 1] - indptr[v]));
    visit(indptr[v], indptr[v + 1]);
  }
}

}  // namespace

void sort_edge_types(const int64_t* indptr, int64_t num_nodes, const int32_t* types,
                     int64_t* order) {
  std::vector<int64_t> next(
      kMaxEdgeTypes);  // how many edges of a type; then where its next one goes
  std::vector<int32_t> present;
  for_lists(indptr, num_nodes, [&](int64_t first, int64_t last) {
    for (const int32_t type : present) next[type] = 0;
    present.clear();
    for (int64_t e = first; e < last; ++e) {
      if (next[types[e]]++ == 0) present.push_back(types[e]);
    }
    std::sort(present.begin(), present.end());
    int64_t begin = first;
    for (const int32_t type : present) {
      const int64_t count = next[type];
      next[type] = begin;
      begin += count;
    }
    for (int64_t e = first; e < last; ++e) order[next[types[e]]++] = e;
  });
}

bool count_edge_type_runs(const int64_t* indptr, int64_t num_nodes, const int32_t* types,
                          int64_t* first_run) {
  bool sorted = true;
  int64_t num_runs = 0;
  for_lists(indptr, num_nodes, [&](int64_t first, int64_t last) {
    *first_run++ = num_runs;
    num_runs += first < last;
    for (int64_t e = first + 1; e < last; ++e) {
      num_runs += types[e] != types[e - 1];
      sorted &= types[e] >= types[e - 1];
    }
  });
  *first_run = num_runs;
  return sorted;
}

void index_edge_types(const int64_t* indptr, int64_t num_nodes, const int32_t* types,
                      int32_t* run_type, int64_t* run_ptr) {
  for_lists(indptr, num_nodes, [&](int64_t first, int64_t last) {
    for (int64_t e = first; e < last; ++e) {
      if (e > first && types[e] == types[e - 1]) continue;
      *run_type++ = types[e];
      *run_ptr++ = e;
    }
  });
  *run_ptr = indptr[num_nodes];
}

}  // namespace lg
