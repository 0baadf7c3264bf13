// sample_neighbors_cuda.cu: the edges of a hop, drawn uniformly (sample_uniform.h), many destinations
// at once.
//
// A group of lanes serves a destination, a lane a draw, so that the cost follows the fanout and not
// the degree, without atomics: what TurboGNN's sampling in shared memory (section III-B) and its
// scheduling by degree (III-C) work around does not arise.
#include "common/cuda/adjacency.h"
#include "common/cuda/kernel.h"
#include "common/cuda/picked_edges.h"
#include "common/cuda/start_edges.h"
#include "sample_neighbors/draw_distinct.h"
#include "sample_neighbors/fanout.h"

namespace lg {

// Where the edges of each destination begin: destinations nodes[first] to nodes[num_dst - 1].
//
//   in   first_edge            where the first one's begin
//   out  starts[first .. num_dst]
//   out  last_edge             where the last one's end
//   tmp  words[1 + tiles]      zero
//   err  kTooManyEdges         more than max_edges
__global__ void count_edges(const int64_t* indptr, const int64_t* nodes, const int64_t* first,
                            const int64_t* num_dst, const int64_t* first_edge, int64_t fanout,
                            int32_t replace, int64_t max_edges, int32_t* starts, int64_t* last_edge,
                            Word* words, Word* error) {
  if (block_has_failed(error)) return;
  const auto num_edges_of = [=](int64_t dst) {
    const int64_t node = nodes[dst];
    return num_picked(indptr[node + 1] - indptr[node], fanout, replace != 0);
  };
  start_edges(*first, *num_dst, *first_edge, max_edges, num_edges_of, starts, last_edge, words,
              error);
}

//   in   starts                of count_edges()
//   in   table                 [groups of the grid][table_size]: scratch, for fanouts above kLanes
//   out  picked, edge_ids
template <class Index, int kLanes>
__global__ void pick_edges(const int64_t* indptr, const Index* indices, const int64_t* hot_begin,
                           const Index* hot_indices, const int64_t* names, const int64_t* nodes,
                           const int64_t* first, const int64_t* num_dst, const int64_t* first_edge,
                           int64_t fanout, int32_t replace, uint64_t seed, uint32_t epoch,
                           uint32_t step, uint32_t hop, const int32_t* starts, uint32_t* stamps,
                           Word* slots, uint64_t slot_mask, uint32_t batch, uint32_t position_mask,
                           uint32_t* table, uint32_t table_size, Index* picked, int64_t* edge_ids,
                           const Word* error) {
  if (has_failed(error)) return;
  const Adjacency<Index> graph{indptr, indices, hot_begin, hot_indices, names};
  const int64_t num_known = *num_dst;
  const PickedEdges<Index> edges{
      {stamps, slots, slot_mask, batch, position_mask}, num_known - *first_edge, picked, edge_ids};
  const StreamKey key = stream_key(seed, epoch);
  const Lanes<kLanes> lanes;
  const int64_t group = thread_of_grid() / kLanes, num_groups = threads_of_grid() / kLanes;
  PickTable earlier{table == nullptr ? nullptr : table + group * table_size, table_size};
  for (int64_t dst = *first + group; dst < num_known; dst += num_groups) {
    const int64_t node = nodes[dst];
    const int64_t begin = graph.start(node), degree = graph.degree(node);
    const Index* list = graph.list(node);
    const int64_t edge = starts[dst];
    const auto put = [&](uint32_t j, uint32_t position) {
      edges.put(edge + j, list[position], begin + position);
    };
    if (!is_drawn(degree, fanout, replace != 0)) {
      for (uint32_t j = lanes.lane; j < uint32_t(degree); j += kLanes) put(j, j);
      continue;
    }
    const NodeDraws draws = node_draws(key, step, hop, graph.name(node));
    if (replace != 0) {
      for (uint32_t j = lanes.lane; j < uint32_t(fanout); j += kLanes) {
        put(j, draw_below(draws, j, uint32_t(degree), draw_word(draws, j, 0)));
      }
    } else {
      draw_distinct(lanes, draws, uint32_t(degree), uint32_t(fanout), earlier, put);
    }
  }
}

// All in-neighbours of each destination: a thread an edge, whatever the degrees.
template <class Index>
__global__ void copy_edges(const int64_t* indptr, const Index* indices, const int64_t* hot_begin,
                           const Index* hot_indices, const int64_t* nodes, const int64_t* first,
                           const int64_t* num_dst, const int64_t* first_edge,
                           const int64_t* last_edge, const int32_t* starts, uint32_t* stamps,
                           Word* slots, uint64_t slot_mask, uint32_t batch, uint32_t position_mask,
                           Index* picked, int64_t* edge_ids, const Word* error) {
  if (has_failed(error)) return;
  const Adjacency<Index> graph{indptr, indices, hot_begin, hot_indices, nullptr};
  const PickedEdges<Index> edges{
      {stamps, slots, slot_mask, batch, position_mask}, *num_dst - *first_edge, picked, edge_ids};
  for (int64_t edge = *first_edge + thread_of_grid(); edge < *last_edge;
       edge += threads_of_grid()) {
    int64_t low = *first, high = *num_dst;  // starts[low] <= edge < starts[high]
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (starts[middle] <= edge ? low : high) = middle;
    }
    const int64_t node = nodes[low], j = edge - starts[low];
    edges.put(edge, graph.list(node)[j], graph.start(node) + j);
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
