#include "graph/check_runs.h"

#include "common/error.h"

namespace lg {
namespace {

constexpr const char* kRemedy = "Build the graph with Graph.from_hetero, or from_coo.";

template <class Index>
void check_sources(const Index* indices, int64_t begin, int64_t end, int64_t least, int64_t bound) {
  bool all = true;  // without a branch inside, the loop vectorises
  for (int64_t e = begin; e < end; ++e) all &= indices[e] >= least && indices[e] < bound;
  if (all) return;
  for (int64_t e = begin; e < end; ++e) {
    if (indices[e] >= least && indices[e] < bound) continue;
    fail<GraphFormatError>("indices[", e, "] is ", indices[e], ", but the sources of edges of its ",
                           "type lie in [", least, ", ", bound, "). ", kRemedy);
  }
}

void check_times(const uint32_t* edge_time, int64_t begin, int64_t end) {
  for (int64_t e = begin + 1; e < end; ++e) {
    if (edge_time[e] < edge_time[e - 1]) {
      fail<GraphFormatError>("edge_time[", e, "] is ", edge_time[e], ", earlier than edge_time[",
                             e - 1, "] = ", edge_time[e - 1],
                             " of the same run: a node's edges of ",
                             "one type lie in the order of their times. ", kRemedy);
    }
  }
}

}  // namespace

template <class Ptr, class Index>
void check_runs(const Csc<Index>& graph, const NodesOfType& nodes, const Ptr* run_ptr,
                const uint32_t* edge_time) {
  for (int64_t i = 0; i < nodes.num_nodes; ++i) {
    const int64_t node = nodes.first_node + i, run = nodes.first_run + i * nodes.num_slots;
    int64_t at = graph.indptr[node];
    const int64_t list_end = graph.indptr[node + 1];
    for (int64_t slot = 0; slot < nodes.num_slots; ++slot) {
      const int64_t begin = int64_t(run_ptr[run + slot]), end = int64_t(run_ptr[run + slot + 1]);
      if (begin != at || end < begin || end > list_end) {
        fail<GraphFormatError>("run_ptr: run ", run + slot, " of node ", node, " is [", begin, ", ",
                               end, "), but must begin at ", at, " and end by ", list_end,
                               ", where the node's list does. ", kRemedy);
      }
      check_sources(graph.indices, begin, end, nodes.least[slot], nodes.bound[slot]);
      if (edge_time) check_times(edge_time, begin, end);
      at = end;
    }
    if (at != list_end) {
      fail<GraphFormatError>("run_ptr: the runs of node ", node, " end at ", at,
                             ", but its list at ", list_end, ". ", kRemedy);
    }
  }
}

template void check_runs(const Csc<int32_t>&, const NodesOfType&, const uint32_t*, const uint32_t*);
template void check_runs(const Csc<int64_t>&, const NodesOfType&, const uint32_t*, const uint32_t*);
template void check_runs(const Csc<int32_t>&, const NodesOfType&, const int64_t*, const uint32_t*);
template void check_runs(const Csc<int64_t>&, const NodesOfType&, const int64_t*, const uint32_t*);

}  // namespace lg
