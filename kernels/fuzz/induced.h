// induced.h: what holds of a subgraph that a batch's nodes induce.
#pragma once

#include <set>

#include "common/batch.h"
#include "fuzz/target.h"

namespace lg::fuzz {

// Destinations have all edges from nodes of the batch, in the order of their lists, and no others.
template <class Index>
void expect_induced(const SampleLayout& layout, const uint8_t* arena, const Csc<Index>& graph) {
  const auto* nodes = reinterpret_cast<const int64_t*>(arena);
  const std::set<int64_t> scope(nodes, nodes + layout.num_nodes);
  for (const HopLayout& hop : layout.hops) {
    const auto* indptr = reinterpret_cast<const int32_t*>(arena + hop.indptr_offset);
    const auto* indices = reinterpret_cast<const int32_t*>(arena + hop.indices_offset);
    for (int64_t dst = 0; dst < hop.num_dst; ++dst) {
      int64_t next = indptr[dst];
      for (int64_t e = graph.indptr[nodes[dst]]; e < graph.indptr[nodes[dst] + 1]; ++e) {
        if (scope.count(graph.indices[e]) == 0) continue;
        expect(next < indptr[dst + 1] && nodes[indices[next]] == graph.indices[e], "destination ",
               dst, " lacks the edge ", e);
        ++next;
      }
      expect(next == indptr[dst + 1], "destination ", dst, " has edges of its own");
    }
  }
}

}  // namespace lg::fuzz
