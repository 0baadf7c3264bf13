// sample_weighted_cuda.cu: the edges of a hop, drawn by weight (draw_weighted.h), many destinations at
// once.
//
// How many edges a destination takes is known before they are drawn: as many as it has neighbours of
// positive weight, up to the fanout. So all are written where they belong.
#include "common/cuda/adjacency.h"
#include "common/cuda/kernel.h"
#include "common/cuda/picked_edges.h"
#include "sample_neighbors/fanout.h"
#include "sample_weighted/draw_from_shares_block.h"
#include "sample_weighted/draw_weighted_lanes.h"

namespace lg {

// Alias tables lie as the lists do whose edges they are of.
using AliasTables = Adjacency<AliasEntry>;

//   out  num_edges[first .. num_dst - 1]   of each destination
template <int kLanes>
__global__ void count_weighted(const int64_t* indptr, const AliasEntry* table,
                               const int64_t* hot_begin, const AliasEntry* hot_table,
                               const int64_t* nodes, const int64_t* first, const int64_t* num_dst,
                               int64_t fanout, int32_t replace, uint32_t* num_edges,
                               const Word* error) {
  if (has_failed(error)) return;
  const AliasTables tables{indptr, table, hot_begin, hot_table, nullptr};
  const Lanes<kLanes> lanes;
  const int64_t groups = threads_of_grid() / kLanes;
  for (int64_t dst = *first + thread_of_grid() / kLanes; dst < *num_dst; dst += groups) {
    const int64_t node = nodes[dst], degree = tables.degree(node);
    const AliasEntry* entries = tables.list(node);
    int64_t count = 0;
    if (degree > 0 && entries[0] != kNoNeighbor) {
      const bool takes_all = fanout == kAllNeighbors;
      count = replace != 0 && !takes_all
                  ? fanout
                  : choose_weighty(lanes, entries, degree, takes_all ? degree : fanout,
                                   [](int64_t, uint32_t) {});
    }
    if (lanes.lane == 0) num_edges[dst] = uint32_t(count);
  }
}

//   in   starts                 by count_weighted()
//   out  picked, edge_ids
//   out  unfinished[*num_unfinished]   destinations whose trials did not bring all their edges, in any
//                               order; num_picked[dst] were brought
//   tmp  positions              [edges], and table [groups of the grid][table_size] for fanouts above
//                               32: both unused with replacement and without a fanout
template <class Index, int kLanes>
__global__ void pick_weighted(const int64_t* indptr, const Index* indices, const int64_t* hot_begin,
                              const Index* hot_indices, const int64_t* names,
                              const AliasEntry* table, const AliasEntry* hot_table,
                              const int64_t* nodes, const int64_t* first, const int64_t* num_dst,
                              const int64_t* first_edge, int64_t fanout, int32_t replace,
                              uint64_t seed, uint32_t epoch, uint32_t step, uint32_t hop,
                              const int32_t* starts, uint32_t* stamps, Word* slots,
                              uint64_t slot_mask, uint32_t batch, uint32_t position_mask,
                              uint32_t* positions, uint32_t* pick_table, uint32_t pick_table_size,
                              int32_t* num_picked, int32_t* unfinished, Word* num_unfinished,
                              Index* picked, int64_t* edge_ids, const Word* error) {
  if (has_failed(error)) return;
  const Adjacency<Index> graph{indptr, indices, hot_begin, hot_indices, names};
  const AliasTables tables{indptr, table, hot_begin, hot_table, nullptr};
  const int64_t num_known = *num_dst;
  const PickedEdges<Index> edges{
      {stamps, slots, slot_mask, batch, position_mask}, num_known - *first_edge, picked, edge_ids};
  const StreamKey key = stream_key(seed, epoch);
  const Lanes<kLanes> lanes;
  const int64_t group = thread_of_grid() / kLanes, num_groups = threads_of_grid() / kLanes;
  const PickTable earlier{pick_table == nullptr ? nullptr : pick_table + group * pick_table_size,
                          pick_table_size};
  for (int64_t dst = *first + group; dst < num_known; dst += num_groups) {
    const int64_t edge = starts[dst], num_edges = starts[dst + 1] - edge;
    if (num_edges == 0) continue;
    const int64_t node = nodes[dst], begin = graph.start(node), degree = graph.degree(node);
    const Index* list = graph.list(node);
    const AliasEntry* entries = tables.list(node);
    const auto put = [&](int64_t j, uint32_t position) {
      edges.put(edge + j, list[position], begin + position);
    };
    if (!is_drawn(degree, fanout, replace != 0)) {
      choose_weighty(lanes, entries, degree, degree, put);
      continue;
    }
    const WeightedNode drawn{node_draws(key, step, hop, graph.name(node)), entries,
                             uint32_t(degree), nullptr, 0};
    if (replace != 0) {
      for (uint32_t n = lanes.lane; n < uint32_t(fanout); n += kLanes) {
        put(n, drawn.neighbor(drawn.trial(n)));
      }
      continue;
    }
    const uint32_t count =
        choose_by_trials(lanes, drawn, uint32_t(fanout), earlier, positions + edge, put);
    if (count < num_edges && lanes.lane == 0) {
      num_picked[dst] = int32_t(count);
      unfinished[atomicAdd(num_unfinished, Word(1))] = int32_t(dst);
    }
  }
}

//   in   unfinished, num_picked, positions   of pick_weighted()
//   out  picked, edge_ids                     the edges that are missing
//   tmp  shares                               [blocks][max_degree]
template <class Index>
__global__ void pick_from_shares(
    const int64_t* indptr, const Index* indices, const int64_t* hot_begin, const Index* hot_indices,
    const int64_t* names, const AliasEntry* table, const AliasEntry* hot_table,
    const int64_t* nodes, const int64_t* num_dst, const int64_t* first_edge, int64_t fanout,
    uint64_t seed, uint32_t epoch, uint32_t step, uint32_t hop, const int32_t* starts,
    uint32_t* stamps, Word* slots, uint64_t slot_mask, uint32_t batch, uint32_t position_mask,
    const uint32_t* positions, const int32_t* num_picked, const int32_t* unfinished,
    const Word* num_unfinished, Word* shares, int64_t max_degree, Index* picked, int64_t* edge_ids,
    const Word* error) {
  if (has_failed(error)) return;
  const Adjacency<Index> graph{indptr, indices, hot_begin, hot_indices, names};
  const AliasTables tables{indptr, table, hot_begin, hot_table, nullptr};
  const PickedEdges<Index> edges{
      {stamps, slots, slot_mask, batch, position_mask}, *num_dst - *first_edge, picked, edge_ids};
  const StreamKey key = stream_key(seed, epoch);
  for (int64_t i = blockIdx.x; i < int64_t(*num_unfinished); i += gridDim.x) {
    const int64_t dst = unfinished[i], edge = starts[dst], node = nodes[dst];
    const int64_t begin = graph.start(node);
    const Index* list = graph.list(node);
    const WeightedNode drawn{node_draws(key, step, hop, graph.name(node)), tables.list(node),
                             uint32_t(graph.degree(node)), nullptr, 0};
    draw_from_shares_block(drawn, uint32_t(fanout), uint32_t(num_picked[dst]), positions + edge,
                           shares + blockIdx.x * max_degree, [&](uint32_t j, uint32_t position) {
                             edges.put(edge + j, list[position], begin + position);
                           });
    __syncthreads();  // the shares are free again
  }
}

}  // namespace lg

LG_INSTANTIATE(count_weighted<8>)
LG_INSTANTIATE(count_weighted<16>)
LG_INSTANTIATE(count_weighted<32>)
LG_INSTANTIATE(pick_weighted<int32_t, 8>)
LG_INSTANTIATE(pick_weighted<int32_t, 16>)
LG_INSTANTIATE(pick_weighted<int32_t, 32>)
LG_INSTANTIATE(pick_weighted<int64_t, 8>)
LG_INSTANTIATE(pick_weighted<int64_t, 16>)
LG_INSTANTIATE(pick_weighted<int64_t, 32>)
LG_INSTANTIATE(pick_from_shares<int32_t>)
LG_INSTANTIATE(pick_from_shares<int64_t>)
