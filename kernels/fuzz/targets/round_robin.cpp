// Turns give each position once, of the sequence whose turn it is; sequences that are no permutations
// end in an error, or in a permutation all the same.
#include "orders/round_robin.h"

#include <numeric>

#include "fuzz/exact.h"
#include "fuzz/target.h"

namespace lg::fuzz {

LG_FUZZ_TARGET(round_robin) {
  const int64_t num_seeds = choose.size(100), num_sequences = choose.between(1, 9);
  std::vector<Exact<int32_t>> sequences;
  std::vector<const int32_t*> begins;
  Exact<int64_t> starts(num_sequences);
  for (int64_t k = 0; k < num_sequences; ++k) {
    Exact<int32_t> sequence(num_seeds);
    std::iota(sequence.data(), sequence.data() + num_seeds, 0);
    for (int64_t i = num_seeds - 1; i > 0; --i)
      std::swap(sequence[i], sequence[choose.below(i + 1)]);
    starts[k] = num_seeds == 0 ? 0 : choose.below(num_seeds);
    begins.push_back(sequence.data());
    sequences.push_back(std::move(sequence));
  }
  bool is_sound = true;
  if (num_seeds > 0 && choose.below(4) == 0) {
    is_sound = false;
    const int64_t k = choose.below(num_sequences);
    if (choose.flag()) {
      starts[k] = choose.one_of<int64_t>({-1, num_seeds, INT64_MIN, INT64_MAX});
    } else {
      sequences[size_t(k)][choose.below(num_seeds)] =
          choose.one_of<int32_t>({-1, int32_t(num_seeds), INT32_MIN, INT32_MAX, 0});
    }
  }
  Exact<int32_t> order(num_seeds);
  const Outcome outcome =
      outcome_of([&] { round_robin(begins, starts.data(), num_seeds, order.data()); });
  if (outcome != Outcome::kDone) {
    expect(!is_sound && outcome == Outcome::kSeedError, "sound sequences: ", outcome);
    return;
  }
  std::vector<bool> taken(size_t(num_seeds), false);
  for (int64_t i = 0; i < num_seeds; ++i) {
    expect(order[i] >= 0 && order[i] < num_seeds && !taken[size_t(order[i])], "position ", order[i],
           " at ", i);
    taken[size_t(order[i])] = true;
  }
  // Each sequence's first turn: from its start on, the first that earlier turns have left.
  for (int64_t k = 0; k < std::min(num_sequences, num_seeds) && is_sound; ++k) {
    int64_t at = starts[k];
    const auto is_taken = [&](int32_t position) {
      return std::find(order.begin(), order.begin() + k, position) != order.begin() + k;
    };
    while (is_taken(sequences[size_t(k)][at])) at = (at + 1) % num_seeds;
    expect(order[k] == sequences[size_t(k)][at], "the first turn of sequence ", k);
  }
}

}  // namespace lg::fuzz
