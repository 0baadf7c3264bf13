#include "graph/check_runs.h"

#include "common/error.h"
#include "common/signals.h"

namespace lg {
namespace {

constexpr const char* kRemedy = "Build the graph with Graph.from_hetero, or from_coo.";

// Searches a run, in which something is wrong, for the first that is.
template <class Index>
[[noreturn]] void name_edge(const Index* indices, const uint32_t* edge_time, int64_t begin,
                            int64_t end, int64_t least, int64_t bound) {
  for (int64_t e = begin; e < end; ++e) {
    if (indices[e] >= least && indices[e] < bound) continue;
    fail<GraphFormatError>("indices[", e, "] is ", indices[e], ", but the sources of edges of its ",
                           "type lie in [", least, ", ", bound, "). ", kRemedy);
  }
  int64_t e = begin + 1;
  while (edge_time[e] >= edge_time[e - 1]) ++e;
  fail<GraphFormatError>("edge_time[", e, "] is ", edge_time[e], ", earlier than edge_time[", e - 1,
                         "] = ", edge_time[e - 1], " of the same run: a node's edges of ",
                         "one type lie in the order of their times. ", kRemedy);
}

// Runs are short: a branch an edge, or a vector of edges, would cost more than what is compared.
template <class Index>
void check_edges(const Index* indices, const uint32_t* edge_time, int64_t begin, int64_t end,
                 int64_t least, int64_t bound) {
  bool bad = false;
  uint32_t before = 0;
  for (int64_t e = begin; e < end; ++e) {
    bad |= !in_range(indices[e] - least, bound - least);
    if (edge_time == nullptr) continue;
    bad |= edge_time[e] < before;
    before = edge_time[e];
  }
  if (bad) name_edge(indices, edge_time, begin, end, least, bound);
}

}  // namespace

template <class Ptr, class Index>
void check_runs(const Csc<Index>& graph, const NodesOfType& nodes, const Ptr* run_ptr,
                const uint32_t* edge_time) {
  SignalWatch signals;
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
      check_edges(graph.indices, edge_time, begin, end, nodes.least[slot], nodes.bound[slot]);
      signals.after(1 + end - at);
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
