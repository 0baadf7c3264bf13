// graphs.h: random graphs that pass check_csc, most of them tiny and odd.
#pragma once

#include <sys/mman.h>

#include <limits>

#include "common/batch.h"
#include "fuzz/choices.h"
#include "fuzz/exact.h"

namespace lg::fuzz {

template <class Index>
struct Graph {
  Exact<int64_t> indptr;
  Exact<Index> indices;

  int64_t num_nodes() const { return indptr.size() - 1; }
  Csc<Index> csc() const { return {indptr.data(), indices.data(), num_nodes()}; }
};

// A few in a thousand are large enough for tables to grow and for many chunks of nodes.
inline int64_t random_num_nodes(Choices& choose) {
  return choose.one_in(5000) ? choose.between(10'000, 60'000)
                             : choose.size(choose.one_in(50) ? 4000 : 60);
}

// No nodes, no edges, loops, repeated edges, hubs, nodes without in-neighbours: all of them likely.
template <class Index>
Graph<Index> random_graph(Choices& choose) {
  const int64_t num_nodes = random_num_nodes(choose);
  const int64_t num_edges = num_nodes == 0 ? 0 : choose.size(8 * num_nodes);
  const int64_t num_dst =
      choose.flag() ? num_nodes : choose.size(num_nodes);  // of those with edges
  const int64_t num_src = choose.flag() ? num_nodes : choose.size(num_nodes);
  Graph<Index> graph{Exact<int64_t>(num_nodes + 1), Exact<Index>(num_edges)};
  for (int64_t e = 0; e < num_edges; ++e) {
    ++graph.indptr[num_nodes - choose.below(std::max<int64_t>(num_dst, 1))];
    graph.indices[e] = Index(num_nodes - 1 - choose.below(std::max<int64_t>(num_src, 1)));
  }
  for (int64_t v = 0; v < num_nodes; ++v) graph.indptr[v + 1] += graph.indptr[v];
  return graph;
}

// 2^34 neighbours, all of them node 0, without memory: the pages of an untouched map are one page.
// nullptr on a system that lends no such address space.
inline const int32_t* endless_indices() {
  static void* const map =
      mmap(nullptr, size_t(4) << 34, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return map == MAP_FAILED ? nullptr : static_cast<const int32_t*>(map);
}

// An id that is no node: just outside, far outside, or one that narrow arithmetic would wrap.
template <class Id>
Id bad_id(Choices& choose, int64_t num_nodes) {
  constexpr Id kLeast = std::numeric_limits<Id>::min(), kMost = std::numeric_limits<Id>::max();
  return choose.one_of<Id>({-1, Id(-1 - choose.size(1000)), kLeast, Id(num_nodes),
                            Id(num_nodes + choose.size(1000)), kMost, Id(kMost / 2 + num_nodes)});
}

}  // namespace lg::fuzz
