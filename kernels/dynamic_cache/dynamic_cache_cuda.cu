// dynamic_cache_cuda.cu: who was missed is admitted, in the order of the batch, and who came first goes
// for it: what evictor.h does on the CPU for "fifo".
//
// Slots are given in turn, so the k-th admission since the beginning is to slot k % num_slots, and the
// rank of a miss within its batch decides where it goes. Of a batch of more misses than slots, the last
// ones stay. A batch is claim(), list_admitted() and admit(), with nothing in between that may fail.
// Where a batch repeats ids and misses more than there are slots, an id that it evicts itself is not
// admitted again.
// Source: BGL (NSDI'23), sections 3.2.1 and 3.2.3, which queues operations for one thread instead.
#include "common/cuda/kernel.h"
#include "common/cuda/move_rows.h"
#include "common/cuda/scan.h"

namespace lg {

constexpr int32_t kFirstClaim = int32_t(0x80000000u);  // of the batch's first id; others follow

//   io   slot_of[num_nodes]  each node's slot; negative: none. Then the claim of the first of ids[count]
//                            that names the node.
//   io   num_given           admissions before this batch, once those of the last are counted
//   io   num_admitted        of the last batch; 0 afterwards
__global__ void claim(int32_t* slot_of, int64_t num_nodes, const int64_t* ids, int64_t count,
                      int64_t* num_given, int64_t* num_admitted) {
  if (thread_of_grid() == 0) {
    *num_given += *num_admitted;
    *num_admitted = 0;
  }
  for (int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    const int64_t id = ids[i];
    if (uint64_t(id) < uint64_t(num_nodes) && slot_of[id] < 0) {
      atomicMin(slot_of + id, kFirstClaim + int32_t(i));
    }
  }
}

//   out  admitted_ids, admitted_positions  [count] each, of which the first are written: in the order
//                                          of ids, each once
//   out  num_admitted
//   tmp  words[1 + tiles]                  zero
__global__ void __launch_bounds__(kScanThreads)
    list_admitted(const int32_t* slot_of, int64_t num_nodes, const int64_t* ids, int64_t count,
                  int64_t* admitted_ids, int64_t* admitted_positions, int64_t* num_admitted,
                  Word* words) {
  TileScan scan(words);
  for (int64_t tile = scan.next_tile(); tile == 0 || tile * kScanThreads < count;
       tile = scan.next_tile()) {
    const int64_t i = tile * kScanThreads + int64_t(threadIdx.x);
    const int64_t id = i < count ? ids[i] : -1;
    const bool is_first =
        uint64_t(id) < uint64_t(num_nodes) && slot_of[id] == kFirstClaim + int32_t(i);
    const BlockSum sum = block_sum(is_first);
    const int64_t before = scan.before(tile, sum.total);
    if (is_first) {
      admitted_ids[before + sum.before] = id;
      admitted_positions[before + sum.before] = i;
    }
    if ((tile + 1) * kScanThreads >= count && threadIdx.x == 0) *num_admitted = before + sum.total;
  }
}

//   in   batch                rows of the batch, by position
//   io   slot_of, node_of     node_of[num_slots]: the node that has a slot; negative: nobody yet
//   out  rows                 num_slots rows of row_vectors vectors
template <class Vector>
__global__ void __launch_bounds__(kMoveThreads)
    admit(const int64_t* admitted_ids, const int64_t* admitted_positions,
          const int64_t* num_admitted, const int64_t* num_given, const uint8_t* batch,
          uint32_t row_vectors, int32_t rows_a_warp, int64_t num_slots, int32_t* slot_of,
          int64_t* node_of, uint8_t* rows) {
  const int64_t row_bytes = int64_t(row_vectors) * int64_t(sizeof(Vector));
  const int64_t count = *num_admitted, first_kept = count - num_slots, given = *num_given;
  const auto take = [&](int64_t m) {
    RowMove move{nullptr, nullptr};
    if (m >= 0 && m < first_kept) {
      slot_of[admitted_ids[m]] = -1;
    } else if (m >= 0) {
      const int64_t slot = (given + m) % num_slots, id = admitted_ids[m], evicted = node_of[slot];
      if (evicted >= 0) slot_of[evicted] = -1;
      node_of[slot] = id;
      slot_of[id] = int32_t(slot);
      move = {batch + admitted_positions[m] * row_bytes, rows + slot * row_bytes};
    }
    move_rows<Vector>(move, row_vectors);
  };
  for_each_of_warp(count, thread_of_grid() / 32, threads_of_grid() / 32, rows_a_warp, take);
}

}  // namespace lg

LG_INSTANTIATE(claim)
LG_INSTANTIATE(list_admitted)
LG_INSTANTIATE(admit<uint4>)
LG_INSTANTIATE(admit<uint2>)
LG_INSTANTIATE(admit<uint32_t>)
LG_INSTANTIATE(admit<uint16_t>)
LG_INSTANTIATE(admit<uint8_t>)
