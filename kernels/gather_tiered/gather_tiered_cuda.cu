// gather_tiered_cuda.cu: rows of a cached table, each from the shard that holds it: of this device, of
// a peer, or from the host's memory, in one launch. What gather_tiered.h does on the CPU.
//
// Rows of the host come over the bus at less than half its rate where they are read as they come. So,
// where there are enough of them, they are put in order first (order_reads_cuda.cu), and some blocks
// read them so, while the others take what is near.
// Source: GNNLab (EuroSys'22), section 6.1; blocks apart for slow memory: UGache (SOSP'23), section 5.
#include "common/cuda/bus_order.h"
#include "common/cuda/kernel.h"
#include "common/cuda/scan.h"
#include "gather_quantized/row_codes.h"
#include "gather_tiered/location.h"

namespace lg {

constexpr int kNoShard = kMaxShards;  // where rows of none are counted

struct Shards {
  uint64_t begin[kMaxShards];
  int64_t num_rows[kMaxShards];
};

// What Python's TieredTable (ops/cuda/tables/tiers.py) keeps.
struct Tiers {
  const int32_t* location;  // [num_nodes]: shard << 28 | slot of each row; negative: in no shard
  int64_t num_nodes;
  const int64_t* addresses;  // of the shards' first rows
  const int64_t* num_rows;   // of each shard
  int32_t num_shards;        // at most 8
  const void* backing;  // all num_nodes rows, or null: places of rows in no shard are left alone
};

//   in   ids[count]
//   in   far                    of the ids that no shard has, or none; with a backing only
//   in   far_blocks             with `far`, the first blocks of the grid, which take its rows: some, and
//                               fewer than all; else 0
//   in   columns                of a Format that is not AsBytes
//   out  out                    count rows in the Format; of what zeros become where there is no such id
//                               or location
//   out  taken[9]               grows by the rows of each shard, and of none
//   out  host_counts[9]                in the host's memory: what `taken` was, more or less; or null
//   err  kBadId, kBadLocation: at i
template <class Vector, class Format>
__global__ void __launch_bounds__(kMoveThreads)
    gather_tiered(Tiers table, const int64_t* ids, int64_t count, BusOrder far, int32_t far_blocks,
                  MoveShape shape, Columns columns, uint8_t* out, Word* taken, Word* host_counts,
                  Word* error) {
  __shared__ Shards shards;
  __shared__ uint32_t taken_here[kMaxShards + 1];
  if (threadIdx.x < kMaxShards) {
    const bool is_there = int32_t(threadIdx.x) < table.num_shards;
    shards.begin[threadIdx.x] = is_there ? uint64_t(table.addresses[threadIdx.x]) : 0;
    shards.num_rows[threadIdx.x] = is_there ? table.num_rows[threadIdx.x] : 0;
  }
  if (threadIdx.x <= kMaxShards) taken_here[threadIdx.x] = 0;
  __syncthreads();
  using Convert = RowCodes<Vector, Format>;
  const Convert convert{columns};
  const auto* const backing = static_cast<const uint8_t*>(table.backing);
  const int64_t row_bytes = int64_t(shape.row_vectors) * int64_t(sizeof(Vector));
  const int64_t out_bytes = int64_t(shape.row_vectors) * int64_t(sizeof(typename Convert::Out));
  const auto take_far = [&](int64_t k) {
    RowMove move{nullptr, nullptr};
    if (k >= 0) {
      move = {backing + far.id(k) * row_bytes, out + far.position(k) * out_bytes};
      atomicAdd(&taken_here[kNoShard], 1u);
    }
    move_rows<Vector>(move, shape.row_vectors, convert);
  };
  const auto take = [&](int64_t i) {
    RowMove move{nullptr, nullptr};
    if (i >= 0) {
      const int64_t id = ids[i];
      uint8_t* const to = out + i * out_bytes;
      if (uint64_t(id) >= uint64_t(table.num_nodes)) {
        report(error, kBadId, i);
        move = {nullptr, to};
      } else if (const int32_t at = table.location[id]; at < 0) {
        if (far.entries == nullptr) {
          if (backing != nullptr) move = {backing + id * row_bytes, to};
          atomicAdd(&taken_here[kNoShard], 1u);
        }
      } else {
        const int shard = at >> kSlotBits;
        const int64_t slot = at & ((1 << kSlotBits) - 1);
        if (slot < shards.num_rows[shard]) {
          move = {reinterpret_cast<const uint8_t*>(shards.begin[shard]) + slot * row_bytes, to};
        } else {
          report(error, kBadLocation, i);
          move = {nullptr, to};
        }
        atomicAdd(&taken_here[shard], 1u);
      }
    }
    move_rows<Vector>(move, shape.row_vectors, convert);
  };
  const int64_t warp = threadIdx.x / 32, block = int64_t(blockIdx.x), far_end = far_blocks;
  if (block < far_end) {
    for_each_of_warp(int64_t(*far.num_entries), block* kMoveWarps + warp, far_end * kMoveWarps,
                     shape.rows_a_warp, take_far);
  } else {
    for_each_of_warp(count, (block - far_end) * kMoveWarps + warp,
                     (int64_t(gridDim.x) - far_end) * kMoveWarps, shape.rows_a_warp, take);
  }
  __syncthreads();
  if (threadIdx.x <= kMaxShards && taken_here[threadIdx.x] > 0) {
    const Word own = taken_here[threadIdx.x];
    const Word before = atomicAdd(taken + threadIdx.x, own);
    if (host_counts != nullptr)
      *static_cast<volatile Word*>(host_counts + threadIdx.x) = before + own;
  }
}

//   out  missed_ids, missed_positions   [count] each, of which the first are written: the ids that no
//                                       shard holds, in the order of ids, and where they are among them
//   out  num_missed
//   tmp  words[1 + tiles]               zero
//   err  none: an id that is none is not missed
__global__ void __launch_bounds__(kScanThreads)
    list_missed(const int32_t* location, int64_t num_nodes, const int64_t* ids, int64_t count,
                int64_t* missed_ids, int64_t* missed_positions, int64_t* num_missed, Word* words) {
  TileScan scan(words);
  for (int64_t tile = scan.next_tile(); tile == 0 || tile * kScanThreads < count;
       tile = scan.next_tile()) {
    const int64_t i = tile * kScanThreads + int64_t(threadIdx.x);
    const int64_t id = i < count ? ids[i] : -1;
    const bool is_missed = uint64_t(id) < uint64_t(num_nodes) && location[id] < 0;
    const BlockSum sum = block_sum(is_missed);
    const int64_t before = scan.before(tile, sum.total);
    if (is_missed) {
      missed_ids[before + sum.before] = id;
      missed_positions[before + sum.before] = i;
    }
    if ((tile + 1) * kScanThreads >= count && threadIdx.x == 0) *num_missed = before + sum.total;
  }
}

}  // namespace lg

LG_INSTANTIATE(gather_tiered<uint4, lg::AsBytes>)
LG_INSTANTIATE(gather_tiered<uint2, lg::AsBytes>)
LG_INSTANTIATE(gather_tiered<uint32_t, lg::AsBytes>)
LG_INSTANTIATE(gather_tiered<uint16_t, lg::AsBytes>)
LG_INSTANTIATE(gather_tiered<uint8_t, lg::AsBytes>)
LG_INSTANTIATE(gather_tiered<uint32_t, lg::Float32>)
LG_INSTANTIATE(gather_tiered<uint8_t, lg::Float32>)
LG_INSTANTIATE(gather_tiered<uint32_t, lg::Float16>)
LG_INSTANTIATE(gather_tiered<uint8_t, lg::Float16>)
LG_INSTANTIATE(gather_tiered<uint32_t, lg::BFloat16>)
LG_INSTANTIATE(gather_tiered<uint8_t, lg::BFloat16>)
LG_INSTANTIATE(list_missed)
