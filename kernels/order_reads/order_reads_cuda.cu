// order_reads_cuda.cu: ids in the order of the places that they are read from, for whoever reads over
// the bus (common/cuda/bus_order.h): rows that a cache misses, rows of a table, destinations' lists.
//
// A bucket is a range of ids, and there are enough that one is a few megabytes of even the largest table.
// count_reads(), place_reads() and sort_reads() follow each other; the host is told nothing. Of one batch
// the entries are the same whatever the order of threads, but within a bucket of more than kMostSorted.
//   count_reads   1  how many ids each bucket has, and, by the last block, where its entries begin
//   place_reads   2  the entries, those of a bucket beside each other
//   sort_reads    3  the entries of each bucket in order
#include "common/cuda/kernel.h"
#include "common/cuda/scan.h"
#include "common/cuda/team.h"

namespace lg {

constexpr uint32_t kBuckets = 4096;     // NUM_BUCKETS of ops/cuda/tables/bus_order.py
constexpr uint32_t kMostSorted = 2048;  // 16 KB of shared memory a block

// What is read: ids[*first] and on, up to ids[*end - 1], where these are given, and else `count` of them.
struct Reads {
  const int64_t* ids;
  const int64_t* first;  // nullptr: 0
  const int64_t* end;    // nullptr: *first + count
  int64_t count;         // at most
  int64_t id_mask;       // a mask of what is the id: with queries, something else stands above it
  const int32_t* location;  // nullptr: all are read; else those of a negative location
  int64_t num_rows;

  // Of each id that is read, and its place after *first. Without locations, num_rows stands for an id
  // that is none, so that whoever reads it can tell; with them it is passed over.
  template <class Take>
  __device__ void for_each(Take take) const {
    const int64_t begin = first != nullptr ? *first : 0;
    const int64_t most = end != nullptr ? *end - begin : count;
    const int64_t num_ids = most < count ? most : count;
    for (int64_t i = thread_of_grid(); i < num_ids; i += threads_of_grid()) {
      const int64_t id = ids[begin + i] & id_mask;
      const bool is_row = uint64_t(id) < uint64_t(num_rows);
      if (location != nullptr && !(is_row && location[id] < 0)) continue;
      take(is_row ? id : num_rows, i);
    }
  }
};

struct Buckets {
  uint32_t* next_entries;  // [kBuckets]: zero before; where a bucket's next entry goes
  uint32_t* starts;        // [kBuckets + 1]: where its entries begin; the last one is their number
  Word* num_done;          // zero before: blocks that have counted
  Word* entries;           // [count]
  int32_t shift;           // of an id, to its bucket
  uint32_t position_bits;
};

//   out  buckets.starts, buckets.next_entries: the same
__global__ void __launch_bounds__(kScanThreads) count_reads(Reads reads, Buckets buckets) {
  __shared__ int32_t is_last;
  reads.for_each(
      [&](int64_t id, int64_t) { atomicAdd(buckets.next_entries + (id >> buckets.shift), 1u); });
  __threadfence();  // before the block is counted as done
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(buckets.num_done, Word(1)) == Word(gridDim.x - 1);
  __syncthreads();
  if (is_last == 0) return;
  constexpr uint32_t kOwn = kBuckets / kScanThreads;  // of a thread, beside each other
  uint32_t* const counts = buckets.next_entries + threadIdx.x * kOwn;
  int64_t own = 0;
  for (uint32_t b = 0; b < kOwn; ++b) own += __ldcg(counts + b);
  const BlockSum sum = block_sum(own);
  uint32_t start = uint32_t(sum.before);
  for (uint32_t b = 0; b < kOwn; ++b) {
    const uint32_t count = __ldcg(counts + b);
    buckets.starts[threadIdx.x * kOwn + b] = start;
    counts[b] = start;
    start += count;
  }
  if (threadIdx.x == 0) buckets.starts[kBuckets] = uint32_t(sum.total);
}

//   in   buckets.next_entries      where the entries of each begin; then where they end
//   out  buckets.entries
__global__ void __launch_bounds__(kScanThreads) place_reads(Reads reads, Buckets buckets) {
  reads.for_each([&](int64_t id, int64_t i) {
    const uint32_t at = atomicAdd(buckets.next_entries + (id >> buckets.shift), 1u);
    buckets.entries[at] = Word(id) << buckets.position_bits | Word(i);
  });
}

//   in   buckets.starts, buckets.entries
//   out  buckets.entries
__global__ void __launch_bounds__(kScanThreads) sort_reads(Buckets buckets) {
  __shared__ Word keys[kMostSorted];
  const Team team(blockDim.x);
  for (uint32_t b = blockIdx.x; b < kBuckets; b += gridDim.x) {
    const uint32_t begin = buckets.starts[b], count = buckets.starts[b + 1] - begin;
    if (count < 2 || count > kMostSorted) continue;
    uint32_t size = 2;
    while (size < count) size *= 2;
    for (uint32_t i = threadIdx.x; i < size; i += blockDim.x) {
      keys[i] = i < count ? buckets.entries[begin + i] : 0;
    }
    __syncthreads();
    sort_falling(team, keys, nullptr, size);  // what fills up is zero, and comes last
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
      buckets.entries[begin + count - 1 - i] = keys[i];
    }
    __syncthreads();  // the keys are free again
  }
}

}  // namespace lg

LG_INSTANTIATE(count_reads)
LG_INSTANTIATE(place_reads)
LG_INSTANTIATE(sort_reads)
