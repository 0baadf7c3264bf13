// sample_typed_cuda.cu: the edges of a hop, drawn from each run of a destination by itself (runs.h), as
// far as its query counts them (queries.h), many destinations at once.
//
// A group of lanes serves a destination. A lane looks at a run, so that the searches for times of all
// runs wait for memory together; then the lanes draw from one run after the other, a lane a draw. What
// counts is found twice, to count edges and to pick them: to keep it between would take memory for
// every destination and slot, of which a type may have thousands.
#include "common/cuda/adjacency.h"
#include "common/cuda/batch.h"
#include "common/cuda/kernel.h"
#include "sample_neighbors/draw_distinct.h"
#include "sample_neighbors/fanout.h"
#include "sample_typed/dense_runs.h"
#include "sample_typed/excluded.h"

namespace lg {

// What the seeds of a batch ask for, as Queries and PathQueries (queries.h) have it: in batch.nodes, too,
// the number of a node's query stands above its id.
struct Asked {
  const uint32_t* name;   // by query; nullptr: the batch's step
  const uint32_t* since;  // by query; nullptr: from the first code on
  const uint32_t* until;  // by query; nullptr: whatever the code
  const int64_t*
      pairs;  // along paths, by number: a query above a bound; nullptr: numbers are queries
  ExcludedEdges excluded;  // of edges into seeds, or along paths of any
  int64_t num_seeds;
  int32_t shift;
  int32_t by_row;

  __device__ int64_t number(int64_t value) const { return value >> shift; }
  __device__ int64_t above(int64_t value) const { return number(value) << shift; }
  __device__ int64_t node(int64_t value) const { return value - above(value); }

  __device__ int64_t query(int64_t number) const {
    return pairs != nullptr ? pairs[number] >> 32 : number;
  }
  // How far a node's number lies above the one that its query had, which tells what the query leaves out.
  __device__ int64_t moved(int64_t value) const {
    return pairs != nullptr ? (number(value) - query(number(value))) << shift : 0;
  }
  __device__ uint32_t bound(int64_t number) const {
    return pairs != nullptr ? uint32_t(pairs[number]) : until[number];
  }

  // What takes the place of the step in the names of draws.
  __device__ uint32_t step(int64_t number, uint32_t of_batch) const {
    const uint32_t named = name != nullptr ? name[query(number)] : of_batch;
    const bool is_on_path = pairs != nullptr && bound(number) != until[query(number)];
    return is_on_path ? named ^ hash32(bound(number)) : named;
  }
};

// What an edge finds along a path asks for what came before the edge: the pair of a query and a bound,
// by edge, and the table in which pairs get their numbers. Unused elsewhere.
struct Along {
  NodeStamps known;
  int64_t* pairs;            // by edge
  const int64_t* num_known;  // before the hop
  uint32_t path_end;         // 1: what came at the edge's time as well
};

// How a hop draws.
struct TypedDraws {
  const int64_t* fanouts;  // by edge type; 0 draws none
  const uint8_t* timed;    // by edge type: whether its edges have times
  int32_t replace;
  int32_t newest;      // instead of a draw: the last of a run of a type with times
  int32_t is_untyped;  // the one type is none
};

// A run, as far as it counts for the query of its destination.
struct CountedRun {
  int64_t begin = 0;    // in the destination's list
  uint32_t degree = 0;  // without the edges that are left out
  int32_t type = 0;
  int64_t num_picked = 0;
  ExcludedPart left_out;
};

// A destination of a hop and its runs. Time codes lie as the lists do whose edges they are of.
template <class Offset>
class TypedDestination {
 public:
  __device__ TypedDestination(const DenseRuns<Offset>& runs, const Adjacency<uint32_t>& times,
                              const TypedDraws& draws, const Asked& asked, int64_t value,
                              bool is_seed)
      : times_(times),
        draws_(draws),
        asked_(asked),
        is_seed_(is_seed),
        number_(asked.number(value)),
        above_(asked.above(value)),
        node_(asked.node(value)) {
    const int64_t type = runs.type_of(node_);
    runs_ = runs.runs_of(node_, type);
    types_ = runs.slot_type + runs.slot_ptr[type];
    num_slots_ = runs.slot_ptr[type + 1] - runs.slot_ptr[type];
  }

  __device__ int64_t number() const { return number_; }
  __device__ int64_t node() const { return node_; }
  __device__ int64_t num_slots() const { return num_slots_; }

  // Of its list's first edge, below its query. There has to be a slot.
  __device__ int64_t first_value() const { return above_ | int64_t(runs_[0]); }
  __device__ int64_t with_query(int64_t neighbor) const { return above_ | neighbor; }

  __device__ CountedRun run(int64_t slot) const {
    CountedRun run;
    run.left_out = {asked_.excluded.values, asked_.excluded.values, 0};
    if (slot >= num_slots_) return run;
    run.type = types_[slot];
    run.begin = int64_t(runs_[slot]) - int64_t(runs_[0]);
    run.degree = uint32_t(runs_[slot + 1] - runs_[slot]);
    const int64_t fanout = draws_.fanouts[run.type];
    if (run.degree == 0 || fanout == 0) return run;
    const bool is_timed = draws_.timed[run.type] != 0;
    if (is_timed) narrow(run);
    // Along paths a seed's node is found again, as another one.
    if (asked_.excluded.count > 0 && (is_seed_ || asked_.pairs != nullptr)) {
      const int64_t first = first_value() + run.begin;
      run.left_out = asked_.excluded.within(first, first + run.degree, asked_.moved(above_));
      run.degree -= uint32_t(run.left_out.size());
    }
    if (draws_.newest != 0 && is_timed && fanout != kAllNeighbors && run.degree > fanout) {
      run.begin += run.degree - fanout;
      run.degree = uint32_t(fanout);
    }
    run.num_picked = num_picked(run.degree, fanout, draws_.replace != 0);
    return run;
  }

 private:
  __device__ void narrow(CountedRun& run) const {
    if (asked_.since == nullptr && asked_.until == nullptr) return;
    const uint32_t* codes = times_.list(node_) + run.begin;
    const int64_t degree = run.degree;
    int64_t begin = 0, end = degree;
    if (asked_.until != nullptr) end = first_not_below(codes, degree, asked_.bound(number_));
    if (asked_.since != nullptr) {
      begin = first_not_below(codes, end, asked_.since[asked_.query(number_)]);
    }
    run.begin += begin;
    run.degree = uint32_t(end - begin);
  }

  const Adjacency<uint32_t>& times_;
  const TypedDraws& draws_;
  const Asked& asked_;
  const bool is_seed_;
  const int64_t number_, above_, node_;
  const Offset* runs_;
  const int32_t* types_;
  int64_t num_slots_;
};

//   out  num_edges[*first .. *num_dst - 1]   of each destination
template <class Offset, int kLanes>
__global__ void count_typed(DenseRuns<Offset> runs, Adjacency<uint32_t> times, Batch batch, Hop hop,
                            TypedDraws draws, Asked asked, uint32_t* num_edges) {
  if (has_failed(batch.error)) return;
  const Lanes<kLanes> lanes;
  const int64_t groups = threads_of_grid() / kLanes;
  for (int64_t k = *hop.first + thread_of_grid() / kLanes; k < *hop.num_dst; k += groups) {
    const int64_t dst = hop.destination(k);
    const TypedDestination<Offset> destination(runs, times, draws, asked, batch.nodes[dst],
                                               dst < asked.num_seeds);
    int64_t count = 0;
    for (int64_t slot = lanes.lane; slot < destination.num_slots(); slot += kLanes) {
      count += destination.run(slot).num_picked;
    }
    count = lanes.sum(count);
    // What 32 bits do not hold is more than a batch may have.
    if (lanes.lane == 0) num_edges[dst] = count < 0xffffffff ? uint32_t(count) : 0xffffffffu;
  }
}

//   in   hop.starts                          by count_typed()
//   in   table                               as of pick_edges() (sample_neighbors_cuda.cu)
//   out  edges.picked                        neighbours, below the queries of their destinations; along
//                                            paths by themselves, and along.pairs: see ask_along()
//   out  edges.edge_ids, edges.edge_types
template <class Index, class Offset, int kLanes>
__global__ void pick_typed(Adjacency<Index> graph, DenseRuns<Offset> runs,
                           Adjacency<uint32_t> times, Batch batch, Hop hop, Edges<int64_t> edges,
                           DrawKey key, TypedDraws draws, Asked asked, Along along,
                           PickTable table) {
  if (has_failed(batch.error)) return;
  const PickedEdges<int64_t> picked(batch, hop, edges);
  const StreamKey stream = key.stream(asked.by_row != 0 ? kRowsTag : kKeysTag);
  const Lanes<kLanes> lanes;
  const int64_t group = thread_of_grid() / kLanes, num_groups = threads_of_grid() / kLanes;
  const int64_t num_known = *hop.num_dst;
  const PickTable earlier = table.of_group(group);
  for (int64_t k = *hop.first + group; k < num_known; k += num_groups) {
    const int64_t dst = hop.destination(k);
    int64_t edge = hop.starts[dst];
    if (hop.starts[dst + 1] == edge) continue;
    const TypedDestination<Offset> destination(runs, times, draws, asked, batch.nodes[dst],
                                               dst < asked.num_seeds);
    const int64_t node = destination.node(), first = destination.first_value();
    const Index* list = graph.list(node);
    const int64_t number = destination.number();
    const uint32_t step = asked.step(number, key.step);
    const int64_t moved = asked.moved(batch.nodes[dst]);
    for (int64_t slot = 0; slot < destination.num_slots(); slot += kLanes) {
      const CountedRun mine = destination.run(slot + lanes.lane);
      uint32_t waiting = lanes.vote(mine.num_picked > 0);
      for (; waiting != 0; waiting &= waiting - 1) {
        const int lane = (__ffs(int(waiting)) - 1) % kLanes;
        const int64_t begin = lanes.get(lanes.mask, mine.begin, lane);
        const uint32_t degree = lanes.get(lanes.mask, mine.degree, lane);
        const int32_t type = lanes.get(lanes.mask, mine.type, lane);
        const int64_t count = lanes.get(lanes.mask, mine.num_picked, lane);
        ExcludedPart left_out{};
        if (asked.excluded.count > 0) {
          const int64_t* all = asked.excluded.values;
          left_out = {all + lanes.get(lanes.mask, mine.left_out.begin - all, lane),
                      all + lanes.get(lanes.mask, mine.left_out.end - all, lane), moved};
        }
        const uint32_t of_type = draws.is_untyped != 0 ? key.hop : typed_hop(key.hop, type);
        const auto put = [&](uint32_t j, uint32_t position) {
          const int64_t at = left_out.skip(first + begin + position) - first, e = edge + j;
          const int64_t edge_id = asked.node(first + at);
          if (edges.edge_types != nullptr) edges.edge_types[e] = type;
          if (asked.pairs == nullptr) {
            picked.put(e, destination.with_query(list[at]), edge_id);
            return;
          }
          picked.note(e, list[at], edge_id);
          int64_t pair = asked.pairs[number];
          if (draws.timed[type] != 0) {
            pair = asked.query(number) << 32 | int64_t(times.list(node)[at] + along.path_end);
          }
          along.pairs[e] = pair;
          along.known.occur(pair, *along.num_known + e - *hop.first_edge);
        };
        pick_positions(
            lanes, [&] { return node_draws(stream, step, of_type, graph.name(node)); }, degree,
            draws.fanouts[type], draws.replace != 0, earlier, put);
        edge += count;
      }
    }
  }
}

// Puts what was found along paths below the numbers of its pairs, and lets it occur.
//   in   edges.indices   the numbers, by relabel() (number_nodes_cuda.cu)
//   out  edges.picked
//   err  kTooManyQueries
__global__ void ask_along(Batch batch, Hop hop, Edges<int64_t> edges, int32_t shift) {
  if (has_failed(batch.error)) return;
  const PickedEdges<int64_t> picked(batch, hop, edges);
  for (int64_t e = *hop.first_edge + thread_of_grid(); e < *hop.last_edge; e += threads_of_grid()) {
    const int64_t number = uint32_t(edges.indices[e]);
    if (number >> (63 - shift) != 0) report(batch.error, kTooManyQueries, 0);
    const int64_t value = number << shift | edges.picked[e];
    edges.picked[e] = value;
    picked.known.occur(value, picked.position_of_edge_0 + e);
  }
}

// Takes the queries' numbers from above the nodes of a batch.
//   out  batch.nodes   by themselves
//   out  queries       of each node; along paths the seeds'
__global__ void split_rows(Batch batch, Asked asked, const int64_t* num_nodes, int32_t* queries) {
  if (has_failed(batch.error)) return;
  for (int64_t i = thread_of_grid(); i < *num_nodes; i += threads_of_grid()) {
    const int64_t value = batch.nodes[i];
    queries[i] = int32_t(asked.query(asked.number(value)));
    batch.nodes[i] = asked.node(value);
  }
}

}  // namespace lg

LG_INSTANTIATE(count_typed<uint32_t, 8>)
LG_INSTANTIATE(count_typed<uint32_t, 32>)
LG_INSTANTIATE(count_typed<int64_t, 8>)
LG_INSTANTIATE(count_typed<int64_t, 32>)
LG_INSTANTIATE(pick_typed<int32_t, uint32_t, 8>)
LG_INSTANTIATE(pick_typed<int32_t, uint32_t, 16>)
LG_INSTANTIATE(pick_typed<int32_t, uint32_t, 32>)
LG_INSTANTIATE(pick_typed<int32_t, int64_t, 8>)
LG_INSTANTIATE(pick_typed<int32_t, int64_t, 16>)
LG_INSTANTIATE(pick_typed<int32_t, int64_t, 32>)
LG_INSTANTIATE(pick_typed<int64_t, uint32_t, 8>)
LG_INSTANTIATE(pick_typed<int64_t, uint32_t, 16>)
LG_INSTANTIATE(pick_typed<int64_t, uint32_t, 32>)
LG_INSTANTIATE(pick_typed<int64_t, int64_t, 8>)
LG_INSTANTIATE(pick_typed<int64_t, int64_t, 16>)
LG_INSTANTIATE(pick_typed<int64_t, int64_t, 32>)
LG_INSTANTIATE(ask_along)
LG_INSTANTIATE(split_rows)
