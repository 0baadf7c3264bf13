#include "graph/index_edge_types.h"

#include <algorithm>
#include <vector>

#include "common/signals.h"

namespace lg {
namespace {

// How many edges of each type one node has.
class TypeCounts {
 public:
  TypeCounts() : counts_(kMaxEdgeTypes) {}

  // The types of these edges, ascending, each once.
  const std::vector<int32_t>& count(const int32_t* types, int64_t num_edges) {
    for (const int32_t type : present_) counts_[type] = 0;
    present_.clear();
    for (int64_t e = 0; e < num_edges; ++e) {
      if (counts_[types[e]]++ == 0) present_.push_back(types[e]);
    }
    std::sort(present_.begin(), present_.end());
    return present_;
  }

  uint32_t& operator[](int32_t type) { return counts_[type]; }

 private:
  std::vector<uint32_t> counts_;
  std::vector<int32_t> present_;
};

}  // namespace

bool count_edge_type_runs(const int64_t* indptr, int64_t num_nodes, const int32_t* types,
                          int64_t* run_ptr) {
  TypeCounts counts;
  bool sorted = true;
  SignalWatch signals;
  run_ptr[0] = 0;
  for (int64_t v = 0; v < num_nodes; ++v) {
    const int32_t* own = types + indptr[v];
    const int64_t degree = indptr[v + 1] - indptr[v];
    signals.after(1 + degree);
    run_ptr[v + 1] = run_ptr[v] + int64_t(counts.count(own, degree).size());
    sorted = sorted && std::is_sorted(own, own + degree);
  }
  return sorted;
}

void index_edge_types(const int64_t* indptr, int64_t num_nodes, const int32_t* types,
                      const int64_t* run_ptr, int32_t* run_type, uint32_t* run_end,
                      uint32_t* order) {
  TypeCounts counts;
  SignalWatch signals;
  for (int64_t v = 0; v < num_nodes; ++v) {
    const int32_t* own = types + indptr[v];
    const int64_t degree = indptr[v + 1] - indptr[v];
    uint32_t end = 0;
    signals.after(1 + degree);
    int64_t run = run_ptr[v];
    for (const int32_t type : counts.count(own, degree)) {
      const uint32_t begin = end;
      end += counts[type];
      counts[type] = begin;  // from here on: where the next edge of this type goes
      run_type[run] = type;
      run_end[run++] = end;
    }
    if (order == nullptr) continue;
    for (int64_t e = 0; e < degree; ++e) order[indptr[v] + counts[own[e]]++] = uint32_t(e);
  }
}

}  // namespace lg
