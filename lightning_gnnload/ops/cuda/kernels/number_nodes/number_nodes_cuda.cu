// number_nodes_cuda.cu: local ids for the nodes of a batch, in order of first occurrence, seeds first,
// and where each one's edges begin: what common/batch.h does on the CPU, one node after the other.
//
// A hop: whoever picks edges lets each node occur at its position (node_stamps.h); then append_nodes()
// gives the next local ids to those that are new, and relabel() writes the local ids of all.
// Source: DSP (PPoPP'23), section 3, and GNNLab (EuroSys'22), section 5, number nodes by hash tables,
// in an order that depends on the threads; this one does not.
#include "common/cuda/kernel.h"
#include "common/cuda/start_edges.h"

namespace lg {

constexpr int kItems = 4;  // of a thread and tile
constexpr int64_t kTile = int64_t(kScanThreads) * kItems;

//   in   seeds[num_seeds]
//   out  batch.nodes        the seeds
//   out  num_nodes          their number
//   err  kSeedOutOfRange
__global__ void add_seeds(Batch batch, const int64_t* seeds, int64_t num_seeds,
                          int64_t num_graph_nodes, int64_t* num_nodes) {
  if (thread_of_grid() == 0) *num_nodes = num_seeds;
  for (int64_t i = thread_of_grid(); i < num_seeds; i += threads_of_grid()) {
    const int64_t seed = batch.nodes[i] = seeds[i];
    if (uint64_t(seed) < uint64_t(num_graph_nodes)) {
      batch.known.occur(seed, i);
    } else {
      report(batch.error, kSeedOutOfRange, i);
    }
  }
}

//   err  kSeedRepeated
__global__ void check_seeds(Batch batch, int64_t num_seeds, int64_t num_graph_nodes) {
  for (int64_t i = thread_of_grid(); i < num_seeds; i += threads_of_grid()) {
    const int64_t seed = batch.nodes[i];
    if (uint64_t(seed) < uint64_t(num_graph_nodes) && !batch.known.is_first(seed, i)) {
      report(batch.error, kSeedRepeated, i);
    }
  }
}

// The nodes known before a hop, into a table that was cleared in mid-batch.
__global__ void note_known(Batch batch, Hop hop) {
  if (has_failed(batch.error)) return;
  for (int64_t i = thread_of_grid(); i < *hop.num_dst; i += threads_of_grid()) {
    batch.known.occur(batch.nodes[i], i);
  }
}

// Where the edges of each destination begin (common/cuda/start_edges.h).
//   in   num_edges[*first .. *num_dst - 1]   of each destination
__global__ void sum_edges(Batch batch, Hop hop, const uint32_t* num_edges, int64_t max_edges,
                          Word* words) {
  if (block_has_failed(batch.error)) return;
  const auto num_edges_of = [=](int64_t dst) -> int64_t { return num_edges[dst]; };
  start_edges(batch, hop, max_edges, num_edges_of, words);
}

//   in   edges.picked        nodes, of which edges first_edge to last_edge - 1 have occurred, edge e
//                            at num_dst + e - first_edge
//   out  nodes               those that are new, from num_dst on
//   out  num_nodes           num_dst and the new ones
//   tmp  words[1 + tiles]    zero
template <class Index>
__global__ void append_nodes(Batch batch, Hop hop, Edges<Index> edges, int64_t* nodes,
                             int64_t* num_nodes, Word* words) {
  if (has_failed(batch.error)) return;
  const NodeStamps& known = batch.known;
  const int64_t first = *hop.first_edge, count = *hop.last_edge - first, num_before = *hop.num_dst;
  TileScan scan(words);
  for (int64_t tile = scan.next_tile(); tile == 0 || tile * kTile < count;
       tile = scan.next_tile()) {
    const int64_t begin = tile * kTile + int64_t(threadIdx.x) * kItems;
    int64_t node[kItems];
    bool is_new[kItems];
    int64_t num_new = 0;
    for (int k = 0; k < kItems; ++k) {
      const int64_t e = begin + k;
      node[k] = e < count ? int64_t(edges.picked[first + e]) : 0;
      is_new[k] = e < count && known.is_first(node[k], num_before + e);
      num_new += is_new[k];
    }
    const BlockSum sum = block_sum(num_new);
    const int64_t of_tile = num_before + scan.before(tile, sum.total);
    int64_t local = of_tile + sum.before;
    for (int k = 0; k < kItems; ++k) {
      if (!is_new[k]) continue;
      nodes[local] = node[k];
      known.settle(node[k], local++);
    }
    if ((tile + 1) * kTile >= count && threadIdx.x == 0) *num_nodes = of_tile + sum.total;
  }
}

//   out  edges.indices   the local ids of picked, edges first_edge to last_edge - 1
template <class Index>
__global__ void relabel(Batch batch, Hop hop, Edges<Index> edges) {
  if (has_failed(batch.error)) return;
  for (int64_t e = *hop.first_edge + thread_of_grid(); e < *hop.last_edge; e += threads_of_grid()) {
    edges.indices[e] = batch.known.local(int64_t(edges.picked[e]));
  }
}

}  // namespace lg

LG_INSTANTIATE(add_seeds)
LG_INSTANTIATE(check_seeds)
LG_INSTANTIATE(note_known)
LG_INSTANTIATE(sum_edges)
LG_INSTANTIATE(append_nodes<int32_t>)
LG_INSTANTIATE(append_nodes<int64_t>)
LG_INSTANTIATE(relabel<int32_t>)
LG_INSTANTIATE(relabel<int64_t>)
