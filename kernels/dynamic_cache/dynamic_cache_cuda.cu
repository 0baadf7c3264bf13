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

// What Python's DynamicCache (ops/cuda/tables/dynamic_cache.py) keeps.
struct Slots {
  int32_t* slot_of;  // [num_nodes]: each node's slot; negative: none
  int64_t num_nodes;
  int64_t* node_of;  // [num_slots]: the node that has a slot; negative: nobody yet
  int64_t num_slots;
  uint8_t* rows;          // [num_slots]
  int64_t* num_given;     // admissions before this batch, once those of the last are counted
  int64_t* num_admitted;  // of the last batch, until claim()
};

// Who is admitted, in the order of the batch, each once.
struct Admitted {
  int64_t* ids;        // [count], of which the first are written
  int64_t* positions;  // likewise
};

//   out  cache.slot_of   of a node without a slot: the claim of the first of ids[count] that names it
__global__ void claim(Slots cache, const int64_t* ids, int64_t count) {
  if (thread_of_grid() == 0) {
    *cache.num_given += *cache.num_admitted;
    *cache.num_admitted = 0;
  }
  for (int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    const int64_t id = ids[i];
    if (uint64_t(id) < uint64_t(cache.num_nodes) && cache.slot_of[id] < 0) {
      atomicMin(cache.slot_of + id, kFirstClaim + int32_t(i));
    }
  }
}

//   out  admitted, *cache.num_admitted
//   tmp  words[1 + tiles]                  zero
__global__ void __launch_bounds__(kScanThreads)
    list_admitted(Slots cache, const int64_t* ids, int64_t count, Admitted admitted, Word* words) {
  TileScan scan(words);
  for (int64_t tile = scan.next_tile(); tile == 0 || tile * kScanThreads < count;
       tile = scan.next_tile()) {
    const int64_t i = tile * kScanThreads + int64_t(threadIdx.x);
    const int64_t id = i < count ? ids[i] : -1;
    const bool is_first =
        uint64_t(id) < uint64_t(cache.num_nodes) && cache.slot_of[id] == kFirstClaim + int32_t(i);
    const BlockSum sum = block_sum(is_first);
    const int64_t before = scan.before(tile, sum.total);
    if (is_first) {
      admitted.ids[before + sum.before] = id;
      admitted.positions[before + sum.before] = i;
    }
    if ((tile + 1) * kScanThreads >= count && threadIdx.x == 0)
      *cache.num_admitted = before + sum.total;
  }
}

//   in   batch                rows of the batch, by position
//   out  cache.rows, cache.node_of, cache.slot_of
template <class Vector>
__global__ void __launch_bounds__(kMoveThreads)
    admit(Slots cache, Admitted admitted, const uint8_t* batch, MoveShape shape) {
  const int64_t row_bytes = int64_t(shape.row_vectors) * int64_t(sizeof(Vector));
  const int64_t num_slots = cache.num_slots, given = *cache.num_given;
  const int64_t count = *cache.num_admitted, first_kept = count - num_slots;
  const auto take = [&](int64_t m) {
    RowMove move{nullptr, nullptr};
    if (m >= 0 && m < first_kept) {
      cache.slot_of[admitted.ids[m]] = -1;
    } else if (m >= 0) {
      const int64_t slot = (given + m) % num_slots, id = admitted.ids[m];
      const int64_t evicted = cache.node_of[slot];
      if (evicted >= 0) cache.slot_of[evicted] = -1;
      cache.node_of[slot] = id;
      cache.slot_of[id] = int32_t(slot);
      move = {batch + admitted.positions[m] * row_bytes, cache.rows + slot * row_bytes};
    }
    move_rows<Vector>(move, shape.row_vectors);
  };
  for_each_of_warp(count, thread_of_grid() / 32, threads_of_grid() / 32, shape.rows_a_warp, take);
}

}  // namespace lg

LG_INSTANTIATE(claim)
LG_INSTANTIATE(list_admitted)
LG_INSTANTIATE(admit<uint4>)
LG_INSTANTIATE(admit<uint2>)
LG_INSTANTIATE(admit<uint32_t>)
LG_INSTANTIATE(admit<uint16_t>)
LG_INSTANTIATE(admit<uint8_t>)
