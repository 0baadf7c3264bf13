#include "fuzz/graphs.h"

#include <sys/mman.h>

namespace lg::fuzz {

int64_t random_num_nodes(Choices& choose) {
  return choose.one_in(5000) ? choose.between(10'000, 60'000)
                             : choose.size(choose.one_in(50) ? 4000 : 60);
}

template <class Index>
Graph<Index> random_graph(Choices& choose) {
  const int64_t num_nodes = random_num_nodes(choose);
  const int64_t num_edges = num_nodes == 0 ? 0 : choose.size(8 * num_nodes);
  const int64_t num_dst = choose.flag() ? num_nodes : choose.size(num_nodes);  // with edges
  const int64_t num_src = choose.flag() ? num_nodes : choose.size(num_nodes);
  Graph<Index> graph{Exact<int64_t>(num_nodes + 1), Exact<Index>(num_edges),
                     Exact<int64_t>(choose.one_in(3) ? num_nodes : 0)};
  for (int64_t e = 0; e < num_edges; ++e) {
    ++graph.indptr[num_nodes - choose.below(std::max<int64_t>(num_dst, 1))];
    graph.indices[e] = Index(num_nodes - 1 - choose.below(std::max<int64_t>(num_src, 1)));
  }
  for (int64_t v = 0; v < num_nodes; ++v) graph.indptr[v + 1] += graph.indptr[v];
  const uint64_t first = choose.wide(), stride = choose.wide() | 1;  // odd: all names differ
  for (int64_t v = 0; v < graph.names.size(); ++v) {
    graph.names[v] = int64_t((first + uint64_t(v) * stride) & ((uint64_t(1) << 48) - 1));
  }
  return graph;
}

template Graph<int32_t> random_graph(Choices&);
template Graph<int64_t> random_graph(Choices&);

const int32_t* endless_indices() {
  static void* const map =
      mmap(nullptr, size_t(4) << 34, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return map == MAP_FAILED ? nullptr : static_cast<const int32_t*>(map);
}

}  // namespace lg::fuzz
