#include "graph/check_csc.h"

#include <algorithm>

#include "common/error.h"
#include "common/signals.h"

namespace lg {
namespace {

constexpr int64_t kMaxDegree = 0xffffffff;
constexpr const char* kRemedy =
    "If the graph is stored as COO, build it with Graph.from_coo(src, dst).";

void check_indptr(const int64_t* indptr, int64_t num_nodes, int64_t num_edges) {
  if (indptr[0] != 0) {
    fail<GraphFormatError>("indptr[0] is ", indptr[0], ", but must be 0. ", kRemedy);
  }
  for (int64_t v = 0; v < num_nodes; ++v) {
    if (indptr[v + 1] < indptr[v]) {
      fail<GraphFormatError>("indptr[", v + 1, "] is ", indptr[v + 1], ", less than indptr[", v,
                             "] = ", indptr[v], ": indptr must never fall. ", kRemedy);
    }
    // No overflow: both are non-negative here.
    if (indptr[v + 1] - indptr[v] > kMaxDegree) {
      fail<GraphFormatError>("Node ", v, " has ", indptr[v + 1] - indptr[v],
                             " in-neighbours (indptr[", v + 1, "] - indptr[", v, "]), but at most ",
                             kMaxDegree, " are supported.");
    }
  }
  if (indptr[num_nodes] != num_edges) {
    fail<GraphFormatError>("indptr[", num_nodes, "] is ", indptr[num_nodes], ", but indices has ",
                           num_edges, " edges: indptr must have N + 1 entries and end at E. ",
                           kRemedy);
  }
}

// Blocks without a branch inside vectorise; a bad one is then searched for its first bad index.
template <class Index>
void check_indices(const Index* indices, int64_t num_edges, int64_t num_nodes) {
  constexpr int64_t kBlock = 1024;
  SignalWatch signals;
  for (int64_t begin = 0; begin < num_edges; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, num_edges);
    signals.after(kBlock / 16);  // they are compared by vectors
    Index least = 0, greatest = 0;
    for (int64_t e = begin; e < end; ++e) {
      least = std::min(least, indices[e]);
      greatest = std::max(greatest, indices[e]);
    }
    if (least >= 0 && int64_t(greatest) < num_nodes) continue;
    for (int64_t e = begin; e < end; ++e) {
      if (in_range(indices[e], num_nodes)) continue;
      fail<GraphFormatError>("indices[", e, "] is ", indices[e], ", but indptr describes ",
                             num_nodes, " nodes: indices must lie in [0, ", num_nodes, "). ",
                             kRemedy);
    }
  }
}

}  // namespace

template <class Index>
void check_csc(const int64_t* indptr, int64_t num_nodes, const Index* indices, int64_t num_edges) {
  check_indptr(indptr, num_nodes, num_edges);
  check_indices(indices, num_edges, num_nodes);
}

template void check_csc(const int64_t*, int64_t, const int32_t*, int64_t);
template void check_csc(const int64_t*, int64_t, const int64_t*, int64_t);

}  // namespace lg
