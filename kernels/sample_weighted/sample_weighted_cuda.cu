// sample_weighted_cuda.cu: the edges of a hop, drawn by weight (draw_weighted.h) from each run of a
// destination by itself (runs.h), many runs at once. A graph without types has one run a node.
//
// How many edges a run gives is known before they are drawn: as many as it has neighbours of positive
// weight, up to the fanout. So all are written where they belong.
#include "common/cuda/adjacency.h"
#include "common/cuda/batch.h"
#include "common/cuda/kernel.h"
#include "sample_neighbors/fanout.h"
#include "sample_typed/dense_runs.h"
#include "sample_weighted/draw_from_shares_block.h"
#include "sample_weighted/draw_weighted_lanes.h"

namespace lg {

// How a hop draws.
struct WeightedDraws {
  const int64_t* fanouts;  // by edge type; 0 draws none
  int32_t replace;
  int32_t is_untyped;  // the one type is none
};

// What pick_weighted() leaves to pick_from_shares(), where it draws without replacement.
struct Unfinished {
  uint32_t* positions;  // [edges]: what was picked
  int32_t* num_picked;  // by run: how many edges were brought
  int64_t* runs;        // whose trials did not bring all their edges, in any order
  Word* num_runs;
};

// A run of a destination, and the entries of alias tables that are of its edges. Destination dst has runs
// dst * most_slots and on, of which those beyond its own slots are empty.
template <class Offset>
struct WeightedRun {
  int64_t dst, node, begin;  // begin: of the run, in the node's list
  uint32_t degree = 0;
  int32_t type = 0;
  int64_t fanout = 0;
  const AliasEntry* entries = nullptr;

  __device__ WeightedRun(const DenseRuns<Offset>& runs, const Adjacency<AliasEntry>& tables,
                         const Batch& batch, const WeightedDraws& draws, int64_t number)
      : dst(number / runs.most_slots), node(batch.nodes[dst]), begin(0) {
    const int64_t slot = number - dst * runs.most_slots, node_type = runs.type_of(node);
    const int64_t first_slot = runs.slot_ptr[node_type];
    if (slot >= runs.slot_ptr[node_type + 1] - first_slot) return;
    const Offset* of_node = runs.runs_of(node, node_type);
    begin = int64_t(of_node[slot]) - int64_t(of_node[0]);
    degree = uint32_t(of_node[slot + 1] - of_node[slot]);
    type = runs.slot_type[first_slot + slot];
    fanout = draws.fanouts[type];
    entries = tables.list(node) + begin;
  }

  __device__ WeightedNode drawn(const StreamKey& stream, const DrawKey& key, int64_t name,
                                const WeightedDraws& draws) const {
    const uint32_t hop = draws.is_untyped != 0 ? key.hop : typed_hop(key.hop, type);
    return {node_draws(stream, key.step, hop, name), entries, degree, nullptr, 0};
  }
};

// Which run comes next, in the order of the destinations' lists, as k runs over all those of a hop.
__device__ inline int64_t run_of(const Hop& hop, int64_t most_slots, int64_t k) {
  if (hop.order.entries == nullptr) return k;
  const int64_t place = k / most_slots;
  return hop.destination(place) * most_slots + (k - place * most_slots);
}

// Writes the edges of a run.
template <class Index, class Offset>
struct RunEdges {
  const PickedEdges<Index>& picked;
  const WeightedRun<Offset>& run;
  const Index* list;  // of the node
  int64_t start;      // of the node's list, among all
  int64_t edge;       // the run's first

  __device__ void operator()(int64_t j, uint32_t position) const {
    const int64_t at = run.begin + position;
    picked.put(edge + j, list[at], start + at);
    if (picked.edges.edge_types != nullptr) picked.edges.edge_types[edge + j] = run.type;
  }
};

// Alias tables lie as the lists do whose edges they are of.
//   out  *runs_of_hop.first, *runs_of_hop.num_dst   the numbers of the hop's runs
//   out  num_edges                                  of each of these
template <class Offset, int kLanes>
__global__ void count_weighted(DenseRuns<Offset> runs, Adjacency<AliasEntry> tables, Batch batch,
                               Hop hop, WeightedDraws draws, int64_t* first_run, int64_t* end_run,
                               uint32_t* num_edges) {
  if (has_failed(batch.error)) return;
  const Lanes<kLanes> lanes;
  const int64_t groups = threads_of_grid() / kLanes;
  const int64_t first = *hop.first * runs.most_slots, end = *hop.num_dst * runs.most_slots;
  if (thread_of_grid() == 0) {
    *first_run = first;
    *end_run = end;
  }
  for (int64_t k = first + thread_of_grid() / kLanes; k < end; k += groups) {
    const int64_t r = run_of(hop, runs.most_slots, k);
    const WeightedRun<Offset> run(runs, tables, batch, draws, r);
    int64_t count = 0;
    if (run.degree > 0 && run.fanout != 0 && run.entries[0] != kNoNeighbor) {
      const bool takes_all = run.fanout == kAllNeighbors;
      count = draws.replace != 0 && !takes_all
                  ? run.fanout
                  : choose_weighty(lanes, run.entries, run.degree,
                                   takes_all ? int64_t(run.degree) : run.fanout,
                                   [](int64_t, uint32_t) {});
    }
    if (lanes.lane == 0) num_edges[r] = uint32_t(count);
  }
}

// Where the edges of each destination begin, by where those of its first run do.
__global__ void start_destinations(Batch batch, Hop hop, const int32_t* starts_of_runs,
                                   int64_t most_slots) {
  if (has_failed(batch.error)) return;
  for (int64_t dst = *hop.first + thread_of_grid(); dst <= *hop.num_dst; dst += threads_of_grid()) {
    hop.starts[dst] = starts_of_runs[dst * most_slots];
  }
}

//   in   runs_of_hop            starts by count_weighted()
//   out  edges.picked, edges.edge_ids, edges.edge_types, rest
//   tmp  table                  [groups of the grid][table.size] for fanouts above 32: unused, as rest
//                               is, with replacement and without a fanout
template <class Index, class Offset, int kLanes>
__global__ void pick_weighted(Adjacency<Index> graph, DenseRuns<Offset> runs,
                              Adjacency<AliasEntry> tables, Batch batch, Hop hop, Hop runs_of_hop,
                              Edges<Index> edges, DrawKey key, WeightedDraws draws, PickTable table,
                              Unfinished rest) {
  if (has_failed(batch.error)) return;
  const PickedEdges<Index> picked(batch, hop, edges);
  const StreamKey stream = key.stream();
  const Lanes<kLanes> lanes;
  const int64_t group = thread_of_grid() / kLanes, num_groups = threads_of_grid() / kLanes;
  const int64_t end = *runs_of_hop.num_dst;
  const PickTable earlier = table.of_group(group);
  for (int64_t k = *runs_of_hop.first + group; k < end; k += num_groups) {
    const int64_t r = run_of(hop, runs.most_slots, k);
    const int64_t edge = runs_of_hop.starts[r], num_edges = runs_of_hop.starts[r + 1] - edge;
    if (num_edges == 0) continue;
    const WeightedRun<Offset> run(runs, tables, batch, draws, r);
    const RunEdges<Index, Offset> put{picked, run, graph.list(run.node), graph.start(run.node),
                                      edge};
    if (!is_drawn(run.degree, run.fanout, draws.replace != 0)) {
      choose_weighty(lanes, run.entries, run.degree, run.degree, put);
      continue;
    }
    const uint32_t fanout = uint32_t(run.fanout);
    const WeightedNode drawn = run.drawn(stream, key, graph.name(run.node), draws);
    if (draws.replace != 0) {
      for (uint32_t n = lanes.lane; n < fanout; n += kLanes) put(n, drawn.neighbor(drawn.trial(n)));
      continue;
    }
    const uint32_t count =
        choose_by_trials(lanes, drawn, fanout, earlier, rest.positions + edge, put);
    if (count < num_edges && lanes.lane == 0) {
      rest.num_picked[r] = int32_t(count);
      rest.runs[atomicAdd(rest.num_runs, Word(1))] = r;
    }
  }
}

//   in   rest                   of pick_weighted()
//   out  edges.picked, edges.edge_ids, edges.edge_types   the edges that are missing
//   tmp  shares                 [blocks][max_degree]
template <class Index, class Offset>
__global__ void pick_from_shares(Adjacency<Index> graph, DenseRuns<Offset> runs,
                                 Adjacency<AliasEntry> tables, Batch batch, Hop hop,
                                 Hop runs_of_hop, Edges<Index> edges, DrawKey key,
                                 WeightedDraws draws, Unfinished rest, Word* shares,
                                 int64_t max_degree) {
  if (has_failed(batch.error)) return;
  const PickedEdges<Index> picked(batch, hop, edges);
  const StreamKey stream = key.stream();
  for (int64_t i = blockIdx.x; i < int64_t(*rest.num_runs); i += gridDim.x) {
    const int64_t r = rest.runs[i], edge = runs_of_hop.starts[r];
    const WeightedRun<Offset> run(runs, tables, batch, draws, r);
    const RunEdges<Index, Offset> put{picked, run, graph.list(run.node), graph.start(run.node),
                                      edge};
    draw_from_shares_block(run.drawn(stream, key, graph.name(run.node), draws),
                           uint32_t(run.fanout), uint32_t(rest.num_picked[r]),
                           rest.positions + edge, shares + blockIdx.x * max_degree, put);
    __syncthreads();  // the shares are free again
  }
}

}  // namespace lg

LG_INSTANTIATE(count_weighted<uint32_t, 8>)
LG_INSTANTIATE(count_weighted<uint32_t, 16>)
LG_INSTANTIATE(count_weighted<uint32_t, 32>)
LG_INSTANTIATE(count_weighted<int64_t, 8>)
LG_INSTANTIATE(count_weighted<int64_t, 16>)
LG_INSTANTIATE(count_weighted<int64_t, 32>)
LG_INSTANTIATE(start_destinations)
LG_INSTANTIATE(pick_weighted<int32_t, uint32_t, 8>)
LG_INSTANTIATE(pick_weighted<int32_t, uint32_t, 16>)
LG_INSTANTIATE(pick_weighted<int32_t, uint32_t, 32>)
LG_INSTANTIATE(pick_weighted<int32_t, int64_t, 8>)
LG_INSTANTIATE(pick_weighted<int32_t, int64_t, 16>)
LG_INSTANTIATE(pick_weighted<int32_t, int64_t, 32>)
LG_INSTANTIATE(pick_weighted<int64_t, uint32_t, 8>)
LG_INSTANTIATE(pick_weighted<int64_t, uint32_t, 16>)
LG_INSTANTIATE(pick_weighted<int64_t, uint32_t, 32>)
LG_INSTANTIATE(pick_weighted<int64_t, int64_t, 8>)
LG_INSTANTIATE(pick_weighted<int64_t, int64_t, 16>)
LG_INSTANTIATE(pick_weighted<int64_t, int64_t, 32>)
LG_INSTANTIATE(pick_from_shares<int32_t, uint32_t>)
LG_INSTANTIATE(pick_from_shares<int32_t, int64_t>)
LG_INSTANTIATE(pick_from_shares<int64_t, uint32_t>)
LG_INSTANTIATE(pick_from_shares<int64_t, int64_t>)
