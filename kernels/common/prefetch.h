// prefetch.h: fetching nodes' lists ahead of their use.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/batch.h"
#include "common/fetch.h"

namespace lg {

// Where a node's list begins and ends: one time in eight, these are on two lines.
template <class Index>
LG_PREFETCHES void prefetch_degree(const Csc<Index>& graph, int64_t node) {
  fetch_line(&graph.indptr[node]);
  fetch_line(&graph.indptr[node + 1]);
}

// The first in-neighbours of a node; the processor itself fetches the rest of a list read in order.
template <class Index>
LG_PREFETCHES void prefetch_neighbors(const Csc<Index>& graph, int64_t node) {
  constexpr int64_t kLine = 64 / sizeof(Index), kMost = 16 * kLine;
  const int64_t begin = graph.indptr[node];
  const int64_t end = std::min(graph.indptr[node + 1], begin + kMost);
  for (int64_t p = begin; p < end; p += kLine) fetch_line(&graph.indices[p]);
}

}  // namespace lg
