#include "importance_tree/importance_tree.h"

#include "common/fetch.h"
#include "common/signals.h"
#include "importance_tree/importance.h"
#include "importance_tree/tree.h"

namespace lg {

template <class Index>
void importances(const Csc<Index>& graph, const EdgeWeights& weights, int64_t num_destinations,
                 int64_t* sums) {
  constexpr int64_t kAhead = 32;
  const int64_t num_nodes = graph.num_nodes;
  const int64_t num_edges = graph.indptr[num_nodes];
  std::fill_n(sums, num_nodes, 0);
  if (num_nodes == 0) return;
  const ImportanceUnits units(num_destinations);
  SignalWatch signals;
  for (int64_t dst = 0; dst < num_nodes; ++dst) {
    const int64_t begin = graph.indptr[dst], end = graph.indptr[dst + 1];
    if (begin == end) continue;
    signals.after(end - begin);
    const ListWeights list(weights, begin, end - begin);
    const int64_t importance = units.of_edge(end - begin);
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < num_edges) fetch_line(&sums[graph.indices[i + kAhead]]);
      sums[graph.indices[i]] += weights ? importance_of(units, list, i - begin) : importance;
    }
  }
}

template <class Index>
void importance_tree(const Csc<Index>& graph, const EdgeWeights& weights, int64_t* entries) {
  importances(graph, weights, graph.num_nodes, entries + 1);
  build_tree(entries, graph.num_nodes);
}

template void importances(const Csc<int32_t>&, const EdgeWeights&, int64_t, int64_t*);
template void importances(const Csc<int64_t>&, const EdgeWeights&, int64_t, int64_t*);
template void importance_tree(const Csc<int32_t>&, const EdgeWeights&, int64_t*);
template void importance_tree(const Csc<int64_t>&, const EdgeWeights&, int64_t*);

}  // namespace lg
