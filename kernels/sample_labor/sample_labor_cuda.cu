// sample_labor_cuda.cu: the edges of a hop whose sources' draws lie below a threshold of their
// destination (sample_labor.h, importance 0), many destinations at once.
//
// A warp looks at a piece of a run, so that a hub is many warps' work. How many edges a piece gives is
// known when its sources have drawn; to keep what they drew would take memory for every edge into the
// hop, so they draw twice: to count, and to write each edge where it belongs, in adjacency order.
#include "common/cuda/adjacency.h"
#include "common/cuda/batch.h"
#include "common/cuda/kernel.h"
#include "common/cuda/lanes.h"
#include "sample_labor/draw_threshold.h"
#include "sample_neighbors/fanout.h"
#include "sample_typed/run_of_hop.h"

namespace lg {

constexpr int kPieceLanes = 32;

// How a hop draws.
struct SharedDraws {
  const int64_t* fanouts;  // by edge type; -1 keeps all, 0 none
  int32_t is_untyped;      // the one type is none
  int32_t sums;            // edges weigh 1 / p
  uint32_t piece_size;     // neighbours of a run that a warp looks at
};

// A part of a run: neighbours first to first + size - 1 of it.
template <class Offset>
class Piece {
 public:
  //   in   runs_of_hop.starts   of count_pieces()
  __device__ Piece(const DenseRuns<Offset>& runs, const Batch& batch, const Hop& runs_of_hop,
                   const SharedDraws& draws, int64_t number)
      : Piece(runs, batch, runs_of_hop, draws, number, run_of(runs_of_hop, number)) {}

  __device__ const RunOfHop<Offset>& run() const { return run_; }
  __device__ uint32_t first() const { return first_; }

  // Calls put(rank, j) for each neighbour j of the run that is kept, the rank-th of the piece; all lanes
  // call this, and get how many are kept.
  template <class Index, class Put>
  __device__ uint32_t keep(const Lanes<kPieceLanes>& lanes, const Adjacency<Index>& graph,
                           const StreamKey& stream, const DrawKey& key, const SharedDraws& draws,
                           const Put& put) const {
    const Index* const list = graph.list(run_.node) + run_.begin;
    const uint32_t hop = draws.is_untyped != 0 ? key.hop : typed_hop(key.hop, run_.type);
    const uint64_t threshold =
        takes_all() ? 0 : draw_threshold(uint64_t(fanout_), uint64_t(run_.degree));
    uint32_t count = 0;
    for (uint32_t i = 0; i < size_; i += kPieceLanes) {
      const uint32_t j = first_ + i + lanes.lane;
      bool is_kept = i + lanes.lane < size_;
      if (is_kept && !takes_all()) {
        is_kept = source_draw(node_draws(stream, key.step, hop, graph.name(list[j]))) < threshold;
      }
      const uint32_t kept = lanes.vote(is_kept);
      if (is_kept) put(count + uint32_t(__popc(kept & lanes.lower())), j);
      count += uint32_t(__popc(kept));
    }
    return count;
  }

  __device__ bool takes_all() const { return fanout_ == kAllNeighbors || run_.degree <= fanout_; }
  __device__ uint32_t size() const { return size_; }

  // 1 / p.
  __device__ float weight() const {
    return takes_all() ? 1.0f : float(double(run_.degree) / double(fanout_));
  }

 private:
  __device__ Piece(const DenseRuns<Offset>& runs, const Batch& batch, const Hop& runs_of_hop,
                   const SharedDraws& draws, int64_t number, int64_t run)
      : run_(runs, batch, run), fanout_(draws.fanouts[run_.type]) {
    first_ = uint32_t(number - runs_of_hop.starts[run]) * draws.piece_size;
    size_ = min(run_.degree - first_, draws.piece_size);
  }

  // The run that the piece is of: the last that begins at it or before, as those without any are passed.
  __device__ static int64_t run_of(const Hop& runs_of_hop, int64_t number) {
    int64_t low = *runs_of_hop.first, high = *runs_of_hop.num_dst;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (runs_of_hop.starts[middle] <= number ? low : high) = middle;
    }
    return low;
  }

  const RunOfHop<Offset> run_;
  const int64_t fanout_;
  uint32_t first_, size_;
};

//   out  *first_run, *end_run   the numbers of the hop's runs
//   out  num_pieces             of each of these
template <class Offset>
__global__ void count_pieces(DenseRuns<Offset> runs, Batch batch, Hop hop, SharedDraws draws,
                             int64_t* first_run, int64_t* end_run, uint32_t* num_pieces) {
  if (has_failed(batch.error)) return;
  const int64_t first = *hop.first * runs.most_slots, end = *hop.num_dst * runs.most_slots;
  if (thread_of_grid() == 0) {
    *first_run = first;
    *end_run = end;
  }
  for (int64_t r = first + thread_of_grid(); r < end; r += threads_of_grid()) {
    const RunOfHop<Offset> run(runs, batch, r);
    const uint32_t whole = run.degree / draws.piece_size, rest = run.degree % draws.piece_size;
    num_pieces[r] = draws.fanouts[run.type] == 0 ? 0 : whole + (rest != 0);
  }
}

//   in   runs_of_hop   starts and *last_edge by num_pieces
//   out  num_edges     of each piece
template <class Index, class Offset>
__global__ void count_shared(Adjacency<Index> graph, DenseRuns<Offset> runs, Batch batch,
                             Hop runs_of_hop, DrawKey key, SharedDraws draws, uint32_t* num_edges) {
  if (has_failed(batch.error)) return;
  const StreamKey stream = key.stream();
  const Lanes<kPieceLanes> lanes;
  const int64_t num_pieces = *runs_of_hop.last_edge, warps = threads_of_grid() / kPieceLanes;
  for (int64_t p = thread_of_grid() / kPieceLanes; p < num_pieces; p += warps) {
    const Piece<Offset> piece(runs, batch, runs_of_hop, draws, p);
    const uint32_t count =
        piece.takes_all() ? piece.size()
                          : piece.keep(lanes, graph, stream, key, draws, [](uint32_t, uint32_t) {});
    if (lanes.lane == 0) num_edges[p] = count;
  }
}

// Where the edges of each destination begin: where those of its first run's first piece do.
__global__ void start_by_pieces(Batch batch, Hop hop, const int32_t* starts_of_runs,
                                const int32_t* starts_of_pieces, int64_t most_slots) {
  if (has_failed(batch.error)) return;
  for (int64_t dst = *hop.first + thread_of_grid(); dst <= *hop.num_dst; dst += threads_of_grid()) {
    hop.starts[dst] = starts_of_pieces[starts_of_runs[dst * most_slots]];
  }
}

//   in   starts_of_pieces   by num_edges
//   out  edges.picked, edges.edge_ids, edges.edge_weights, edges.edge_types
template <class Index, class Offset>
__global__ void pick_shared(Adjacency<Index> graph, DenseRuns<Offset> runs, Batch batch, Hop hop,
                            Hop runs_of_hop, Edges<Index> edges, DrawKey key, SharedDraws draws,
                            const int32_t* starts_of_pieces) {
  if (has_failed(batch.error)) return;
  const PickedEdges<Index> picked(batch, hop, edges);
  const StreamKey stream = key.stream();
  const Lanes<kPieceLanes> lanes;
  const int64_t num_pieces = *runs_of_hop.last_edge, warps = threads_of_grid() / kPieceLanes;
  for (int64_t p = thread_of_grid() / kPieceLanes; p < num_pieces; p += warps) {
    const int64_t first_edge = starts_of_pieces[p];
    if (starts_of_pieces[p + 1] == first_edge) continue;
    const Piece<Offset> piece(runs, batch, runs_of_hop, draws, p);
    const RunOfHop<Offset>& run = piece.run();
    const Index* const list = graph.list(run.node) + run.begin;
    const int64_t start = graph.start(run.node) + run.begin;
    piece.keep(lanes, graph, stream, key, draws, [&](uint32_t rank, uint32_t j) {
      const int64_t edge = first_edge + rank;
      picked.put(edge, list[j], start + j);
      if (edges.edge_types != nullptr) edges.edge_types[edge] = run.type;
      if (draws.sums != 0) edges.edge_weights[edge] = piece.weight();
    });
  }
}

}  // namespace lg

LG_INSTANTIATE(count_pieces<uint32_t>)
LG_INSTANTIATE(count_pieces<int64_t>)
LG_INSTANTIATE(count_shared<int32_t, uint32_t>)
LG_INSTANTIATE(count_shared<int32_t, int64_t>)
LG_INSTANTIATE(count_shared<int64_t, uint32_t>)
LG_INSTANTIATE(count_shared<int64_t, int64_t>)
LG_INSTANTIATE(start_by_pieces)
LG_INSTANTIATE(pick_shared<int32_t, uint32_t>)
LG_INSTANTIATE(pick_shared<int32_t, int64_t>)
LG_INSTANTIATE(pick_shared<int64_t, uint32_t>)
LG_INSTANTIATE(pick_shared<int64_t, int64_t>)
