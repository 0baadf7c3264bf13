// sample_neighbors_cuda.cu: the edges of a hop, drawn uniformly (sample_uniform.h), many destinations
// at once.
//
// A group of lanes serves a destination, a lane a draw, so that the cost follows the fanout and not
// the degree, without atomics: what TurboGNN's sampling in shared memory (section III-B) and its
// scheduling by degree (III-C) work around does not arise.
#include "common/cuda/adjacency.h"
#include "common/cuda/kernel.h"
#include "common/cuda/start_edges.h"
#include "sample_neighbors/draw_distinct.h"
#include "sample_neighbors/fanout.h"

namespace lg {

// Where the edges of each destination begin (common/cuda/start_edges.h).
__global__ void count_edges(const int64_t* indptr, Batch batch, Hop hop, int64_t fanout,
                            int32_t replace, int64_t max_edges, Word* words) {
  if (block_has_failed(batch.error)) return;
  const auto num_edges_of = [=](int64_t dst) {
    const int64_t node = batch.nodes[dst];
    return num_picked(indptr[node + 1] - indptr[node], fanout, replace != 0);
  };
  start_edges(batch, hop, max_edges, num_edges_of, words);
}

//   in   hop.starts            of count_edges()
//   in   table                 [groups of the grid][table.size]: scratch, for fanouts above kLanes
//   out  edges.picked, edges.edge_ids
template <class Index, int kLanes>
__global__ void pick_edges(Adjacency<Index> graph, Batch batch, Hop hop, Edges<Index> edges,
                           DrawKey key, int64_t fanout, int32_t replace, PickTable table) {
  if (has_failed(batch.error)) return;
  const PickedEdges<Index> picked(batch, hop, edges);
  const StreamKey stream = key.stream();
  const Lanes<kLanes> lanes;
  const int64_t group = thread_of_grid() / kLanes, num_groups = threads_of_grid() / kLanes;
  const int64_t num_known = *hop.num_dst;
  const PickTable earlier = table.of_group(group);
  for (int64_t k = *hop.first + group; k < num_known; k += num_groups) {
    const int64_t dst = hop.destination(k);
    const int64_t node = batch.nodes[dst];
    const int64_t begin = graph.start(node), degree = graph.degree(node);
    const Index* list = graph.list(node);
    const int64_t edge = hop.starts[dst];
    pick_positions(
        lanes, [&] { return node_draws(stream, key.step, key.hop, graph.name(node)); }, degree,
        fanout, replace != 0, earlier,
        [&](uint32_t j, uint32_t position) {
          picked.put(edge + j, list[position], begin + position);
        });
  }
}

// All in-neighbours of each destination: a thread an edge, whatever the degrees.
template <class Index>
__global__ void copy_edges(Adjacency<Index> graph, Batch batch, Hop hop, Edges<Index> edges) {
  if (has_failed(batch.error)) return;
  const PickedEdges<Index> picked(batch, hop, edges);
  const int32_t* starts = hop.starts;
  for (int64_t edge = *hop.first_edge + thread_of_grid(); edge < *hop.last_edge;
       edge += threads_of_grid()) {
    int64_t low = *hop.first, high = *hop.num_dst;  // starts[low] <= edge < starts[high]
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (starts[middle] <= edge ? low : high) = middle;
    }
    const int64_t node = batch.nodes[low], j = edge - starts[low];
    picked.put(edge, graph.list(node)[j], graph.start(node) + j);
  }
}

}  // namespace lg

LG_INSTANTIATE(count_edges)
LG_INSTANTIATE(pick_edges<int32_t, 8>)
LG_INSTANTIATE(pick_edges<int32_t, 16>)
LG_INSTANTIATE(pick_edges<int32_t, 32>)
LG_INSTANTIATE(pick_edges<int64_t, 8>)
LG_INSTANTIATE(pick_edges<int64_t, 16>)
LG_INSTANTIATE(pick_edges<int64_t, 32>)
LG_INSTANTIATE(copy_edges<int32_t>)
LG_INSTANTIATE(copy_edges<int64_t>)
