// lay_subgraph.h: the subgraph that a batch's nodes induce, as hops of any number.
//
// All hops share one CSC, of induced_edges/induce.h: the first has the seeds as destinations, the others
// all nodes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "induced_edges/induce.h"

namespace lg {

// The edges go to the batch's `edges`, and the caller writes them. Returns the destinations' number.
template <class Batch, class Index>
int64_t lay_subgraph(Batch& batch, const Csc<Index>& graph, int64_t num_layers, bool edge_ids) {
  const int64_t num_seeds = batch.num_seeds();
  const int64_t num_dst = num_layers == 1 ? num_seeds : batch.num_nodes();
  const auto check = [&](int64_t num_edges) { batch.check_num_edges(num_edges); };
  using Table = std::decay_t<decltype(batch.table())>;
  Inducer<Table, Index, decltype(check)> inducer(graph, batch.edges(), edge_ids, check);
  inducer.add(batch.table(), batch.nodes(), batch.num_nodes(), num_dst);
  const int32_t* indptr = batch.edges().indptr.data();
  batch.end_hop(num_seeds, indptr[num_seeds]);
  for (int64_t layer = 1; layer < num_layers; ++layer) batch.end_hop(num_dst, indptr[num_dst]);
  return num_dst;
}

}  // namespace lg
