#include "partition/settle_nodes.h"

namespace lg {
namespace {

int64_t lightest(uint64_t among, const int64_t* num_own) {
  int64_t best = __builtin_ctzll(among);
  for (among &= among - 1; among != 0; among &= among - 1) {
    const int64_t part = __builtin_ctzll(among);
    if (num_own[part] < num_own[best]) best = part;
  }
  return best;
}

}  // namespace

void settle_nodes(const uint64_t* held, int64_t num_nodes, int32_t* part, int64_t* num_own,
                  int64_t num_parts) {
  const uint64_t all = ~uint64_t(0) >> (64 - num_parts);
  for (int64_t v = 0; v < num_nodes; ++v) {
    if (part[v] >= 0) continue;
    const uint64_t holders = held == nullptr ? 0 : held[v] & all;
    const int64_t best = lightest(holders ? holders : all, num_own);
    part[v] = int32_t(best);
    ++num_own[best];
  }
}

}  // namespace lg
