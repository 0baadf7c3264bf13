// draw_from_shares_block.h: draw_from_shares() of draw_weighted.h, the same choice, by a block of
// kScanThreads. Each thread has a run of the neighbours, whose shares it sums and takes from.
#pragma once

#include "common/cuda/scan.h"
#include "sample_weighted/draw_weighted.h"

namespace lg {

//   in   pick[count]         chosen by trials
//   tmp  shares[degree]      of this block alone
//   out  put(j, position)    for each choice j from count on, by some thread
template <class Put>
__device__ void draw_from_shares_block(const WeightedNode& node, uint32_t fanout, uint32_t count,
                                       const uint32_t* pick, Word* shares, const Put& put) {
  const int64_t degree = node.degree, thread = threadIdx.x;
  for (int64_t i = thread; i < degree; i += kScanThreads) shares[i] = 0;
  __syncthreads();
  for (int64_t i = thread; i < degree; i += kScanThreads) {
    const AliasEntry entry = node.entries[i];
    atomicAdd(shares + i, Word(threshold_of(entry)));
    atomicAdd(shares + alias_of(entry), Word(kSlotShares - threshold_of(entry)));
  }
  __syncthreads();
  for (uint32_t k = threadIdx.x; k < count; k += kScanThreads) shares[pick[k]] = 0;
  __syncthreads();
  const int64_t run = (degree + kScanThreads - 1) / kScanThreads;
  const int64_t begin = min(thread * run, degree), end = min(begin + run, degree);
  Word own = 0;
  for (int64_t i = begin; i < end; ++i) own += shares[i];
  const uint32_t first_draw = max_trials(node.degree, fanout);
  for (; count < fanout; ++count) {
    const BlockSum sum = block_sum(int64_t(own));
    if (sum.total == 0) return;
    // Where it falls in the thread's run; below the run it wraps around, beyond any run's end.
    Word at = draw_below64(node.draws, first_draw + count, uint64_t(sum.total)) - Word(sum.before);
    if (at >= own) continue;
    int64_t i = begin;
    while (at >= shares[i]) at -= shares[i++];
    put(count, uint32_t(i));
    own -= shares[i];
    shares[i] = 0;
  }
}

}  // namespace lg
