#include "orders/round_robin.h"

#include "common/error.h"

namespace lg {
namespace {

struct Sequence {
  const int32_t* next;
  const int32_t* begin;
  const int32_t* end;
  int64_t left;  // entries not looked at: an end to sequences that are no permutation
};

// The next entry that has not been taken.
int32_t take(Sequence& sequence, std::vector<uint8_t>& taken) {
  while (sequence.left > 0) {
    const int32_t position = *sequence.next;
    --sequence.left;
    if (++sequence.next == sequence.end) sequence.next = sequence.begin;
    if (!in_range(position, int64_t(taken.size()))) {
      fail<SeedError>("a sequence holds position ", position, ", but there are ", taken.size(),
                      " seeds.");
    }
    if (taken[position]) continue;
    taken[position] = true;
    return position;
  }
  fail<SeedError>("a sequence does not hold every seed.");
}

}  // namespace

void round_robin(const std::vector<const int32_t*>& sequences, const int64_t* starts,
                 int64_t num_seeds, int32_t* order) {
  std::vector<Sequence> turns;
  for (size_t k = 0; k < sequences.size() && num_seeds > 0; ++k) {
    if (!in_range(starts[k], num_seeds)) {
      fail<SeedError>("starts[", k, "] is ", starts[k], ", but there are ", num_seeds, " seeds.");
    }
    const int32_t* begin = sequences[k];
    turns.push_back({begin + starts[k], begin, begin + num_seeds, num_seeds});
  }
  std::vector<uint8_t> taken(num_seeds);
  for (int64_t i = 0; i < num_seeds; ++i) order[i] = take(turns[i % turns.size()], taken);
}

}  // namespace lg
