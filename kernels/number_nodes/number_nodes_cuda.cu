// number_nodes_cuda.cu: local ids for the nodes of a batch, in order of first occurrence, seeds first:
// what common/batch.h does on the CPU, one node after the other.
//
// A hop: whoever picks edges lets each node occur at its position (node_stamps.h); then append_nodes()
// gives the next local ids to those that are new, and relabel() writes the local ids of all.
// Source: DSP (PPoPP'23), section 3, and GNNLab (EuroSys'22), section 5, number nodes by hash tables,
// in an order that depends on the threads; this one does not.
#include "common/cuda/kernel.h"
#include "common/cuda/node_stamps.h"
#include "common/cuda/scan.h"

namespace lg {

constexpr int kItems = 4;  // of a thread and tile
constexpr int64_t kTile = int64_t(kScanThreads) * kItems;

//   in   seeds[num_seeds]
//   out  nodes[num_seeds]   the seeds
//   out  num_nodes          their number
//   err  kSeedOutOfRange
__global__ void add_seeds(const int64_t* seeds, int64_t num_seeds, int64_t num_graph_nodes,
                          uint32_t* stamps, Word* slots, uint64_t slot_mask, uint32_t batch,
                          uint32_t position_mask, int64_t* nodes, int64_t* num_nodes, Word* error) {
  const NodeStamps known{stamps, slots, slot_mask, batch, position_mask};
  if (thread_of_grid() == 0) *num_nodes = num_seeds;
  for (int64_t i = thread_of_grid(); i < num_seeds; i += threads_of_grid()) {
    const int64_t seed = nodes[i] = seeds[i];
    if (uint64_t(seed) < uint64_t(num_graph_nodes)) {
      known.occur(seed, i);
    } else {
      report(error, kSeedOutOfRange, i);
    }
  }
}

//   err  kSeedRepeated
__global__ void check_seeds(const int64_t* nodes, int64_t num_seeds, int64_t num_graph_nodes,
                            uint32_t* stamps, Word* slots, uint64_t slot_mask, uint32_t batch,
                            uint32_t position_mask, Word* error) {
  const NodeStamps known{stamps, slots, slot_mask, batch, position_mask};
  for (int64_t i = thread_of_grid(); i < num_seeds; i += threads_of_grid()) {
    const int64_t seed = nodes[i];
    if (uint64_t(seed) < uint64_t(num_graph_nodes) && !known.is_first(seed, i)) {
      report(error, kSeedRepeated, i);
    }
  }
}

// Into a table that was cleared in mid-batch.
__global__ void note_known(const int64_t* nodes, const int64_t* num_known, uint32_t* stamps,
                           Word* slots, uint64_t slot_mask, uint32_t batch, uint32_t position_mask,
                           const Word* error) {
  if (has_failed(error)) return;
  const NodeStamps known{stamps, slots, slot_mask, batch, position_mask};
  for (int64_t i = thread_of_grid(); i < *num_known; i += threads_of_grid()) {
    known.occur(nodes[i], i);
  }
}

//   in   picked              nodes, of which edges first_edge to last_edge - 1 have occurred, edge e
//                            at num_known + e - first_edge
//   out  nodes               those that are new, from num_known on
//   out  num_nodes           num_known and the new ones
//   tmp  words[1 + tiles]    zero
template <class Index>
__global__ void append_nodes(const Index* picked, const int64_t* first_edge,
                             const int64_t* last_edge, const int64_t* num_known, uint32_t* stamps,
                             Word* slots, uint64_t slot_mask, uint32_t batch,
                             uint32_t position_mask, int64_t* nodes, int64_t* num_nodes,
                             Word* words, const Word* error) {
  if (has_failed(error)) return;
  const NodeStamps known{stamps, slots, slot_mask, batch, position_mask};
  const int64_t first = *first_edge, count = *last_edge - first, num_before = *num_known;
  TileScan scan(words);
  for (int64_t tile = scan.next_tile(); tile == 0 || tile * kTile < count;
       tile = scan.next_tile()) {
    const int64_t begin = tile * kTile + int64_t(threadIdx.x) * kItems;
    int64_t node[kItems];
    bool is_new[kItems];
    int64_t num_new = 0;
    for (int k = 0; k < kItems; ++k) {
      const int64_t e = begin + k;
      node[k] = e < count ? int64_t(picked[first + e]) : 0;
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

//   out  indices   the local ids of picked, edges first_edge to last_edge - 1
template <class Index>
__global__ void relabel(const Index* picked, const int64_t* first_edge, const int64_t* last_edge,
                        uint32_t* stamps, Word* slots, uint64_t slot_mask, uint32_t batch,
                        uint32_t position_mask, int32_t* indices, const Word* error) {
  if (has_failed(error)) return;
  const NodeStamps known{stamps, slots, slot_mask, batch, position_mask};
  for (int64_t e = *first_edge + thread_of_grid(); e < *last_edge; e += threads_of_grid()) {
    indices[e] = known.local(int64_t(picked[e]));
  }
}

}  // namespace lg

LG_INSTANTIATE(add_seeds)
LG_INSTANTIATE(check_seeds)
LG_INSTANTIATE(note_known)
LG_INSTANTIATE(append_nodes<int32_t>)
LG_INSTANTIATE(append_nodes<int64_t>)
LG_INSTANTIATE(relabel<int32_t>)
LG_INSTANTIATE(relabel<int64_t>)
