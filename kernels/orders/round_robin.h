// round_robin.h: one order of several: each sequence in turn gives its next seed that none has given.
//
//   in   sequences[K]   K >= 1, each a permutation of the positions 0 to S - 1 of the seeds
//   in   starts[K]      where each sequence begins; after its end it goes on at 0
//   out  order[S]       each position once; the i-th is of sequence i mod K
// What is no permutation, or no start in [0, S), is a SeedError. O(K S) time, S bytes.
// Source: BGL (NSDI'23), section 3.2.2.
#pragma once

#include <cstdint>
#include <vector>

namespace lg {

void round_robin(const std::vector<const int32_t*>& sequences, const int64_t* starts,
                 int64_t num_seeds, int32_t* order);

}  // namespace lg
