// sample_weighted_cuda.cu: the edges of a hop, drawn by weight (draw_weighted.h), many destinations at
// once.
//
// How many edges a destination takes is known before they are drawn: as many as it has neighbours of
// positive weight, up to the fanout. So all are written where they belong.
#include "common/cuda/adjacency.h"
#include "common/cuda/batch.h"
#include "common/cuda/kernel.h"
#include "sample_neighbors/fanout.h"
#include "sample_weighted/draw_from_shares_block.h"
#include "sample_weighted/draw_weighted_lanes.h"

namespace lg {

// What pick_weighted() leaves to pick_from_shares(), where it draws without replacement.
struct Unfinished {
  uint32_t* positions;    // [edges]: what was picked
  int32_t* num_picked;    // by destination: how many edges were brought
  int32_t* destinations;  // whose trials did not bring all their edges, in any order
  Word* num_destinations;
};

// Alias tables lie as the lists do whose edges they are of.
//   out  num_edges[*first .. *num_dst - 1]   of each destination
template <int kLanes>
__global__ void count_weighted(Adjacency<AliasEntry> tables, Batch batch, Hop hop, int64_t fanout,
                               int32_t replace, uint32_t* num_edges) {
  if (has_failed(batch.error)) return;
  const Lanes<kLanes> lanes;
  const int64_t groups = threads_of_grid() / kLanes;
  for (int64_t dst = *hop.first + thread_of_grid() / kLanes; dst < *hop.num_dst; dst += groups) {
    const int64_t node = batch.nodes[dst], degree = tables.degree(node);
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

//   in   hop.starts             by count_weighted()
//   out  edges.picked, edges.edge_ids, rest
//   tmp  table                  [groups of the grid][table.size] for fanouts above 32: unused, as rest
//                               is, with replacement and without a fanout
template <class Index, int kLanes>
__global__ void pick_weighted(Adjacency<Index> graph, Adjacency<AliasEntry> tables, Batch batch,
                              Hop hop, Edges<Index> edges, DrawKey key, int64_t fanout,
                              int32_t replace, PickTable table, Unfinished rest) {
  if (has_failed(batch.error)) return;
  const PickedEdges<Index> picked(batch, hop, edges);
  const StreamKey stream = key.stream();
  const Lanes<kLanes> lanes;
  const int64_t group = thread_of_grid() / kLanes, num_groups = threads_of_grid() / kLanes;
  const int64_t num_known = *hop.num_dst;
  const PickTable earlier = table.of_group(group);
  for (int64_t dst = *hop.first + group; dst < num_known; dst += num_groups) {
    const int64_t edge = hop.starts[dst], num_edges = hop.starts[dst + 1] - edge;
    if (num_edges == 0) continue;
    const int64_t node = batch.nodes[dst], begin = graph.start(node), degree = graph.degree(node);
    const Index* list = graph.list(node);
    const AliasEntry* entries = tables.list(node);
    const auto put = [&](int64_t j, uint32_t position) {
      picked.put(edge + j, list[position], begin + position);
    };
    if (!is_drawn(degree, fanout, replace != 0)) {
      choose_weighty(lanes, entries, degree, degree, put);
      continue;
    }
    const WeightedNode drawn{node_draws(stream, key.step, key.hop, graph.name(node)), entries,
                             uint32_t(degree), nullptr, 0};
    if (replace != 0) {
      for (uint32_t n = lanes.lane; n < uint32_t(fanout); n += kLanes) {
        put(n, drawn.neighbor(drawn.trial(n)));
      }
      continue;
    }
    const uint32_t count =
        choose_by_trials(lanes, drawn, uint32_t(fanout), earlier, rest.positions + edge, put);
    if (count < num_edges && lanes.lane == 0) {
      rest.num_picked[dst] = int32_t(count);
      rest.destinations[atomicAdd(rest.num_destinations, Word(1))] = int32_t(dst);
    }
  }
}

//   in   rest                   of pick_weighted()
//   out  edges.picked, edges.edge_ids   the edges that are missing
//   tmp  shares                 [blocks][max_degree]
template <class Index>
__global__ void pick_from_shares(Adjacency<Index> graph, Adjacency<AliasEntry> tables, Batch batch,
                                 Hop hop, Edges<Index> edges, DrawKey key, int64_t fanout,
                                 Unfinished rest, Word* shares, int64_t max_degree) {
  if (has_failed(batch.error)) return;
  const PickedEdges<Index> picked(batch, hop, edges);
  const StreamKey stream = key.stream();
  for (int64_t i = blockIdx.x; i < int64_t(*rest.num_destinations); i += gridDim.x) {
    const int64_t dst = rest.destinations[i], edge = hop.starts[dst], node = batch.nodes[dst];
    const int64_t begin = graph.start(node);
    const Index* list = graph.list(node);
    const WeightedNode drawn{node_draws(stream, key.step, key.hop, graph.name(node)),
                             tables.list(node), uint32_t(graph.degree(node)), nullptr, 0};
    draw_from_shares_block(drawn, uint32_t(fanout), uint32_t(rest.num_picked[dst]),
                           rest.positions + edge, shares + blockIdx.x * max_degree,
                           [&](uint32_t j, uint32_t position) {
                             picked.put(edge + j, list[position], begin + position);
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
