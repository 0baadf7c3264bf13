#include "build_alias/build_alias.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "build_alias/pair_slots.h"
#include "build_alias/shares.h"
#include "common/error.h"
#include "common/signals.h"
#include "common/workspace.h"

namespace lg {
namespace {

template <class Weight>
[[noreturn]] void fail_at_bad_weight(const Weight* weights, int64_t begin, int64_t end) {
  int64_t e = begin;
  while (e + 1 < end && weight_bits(weights[e]) < kInfinityBits<Weight>) ++e;
  fail<GraphFormatError>("edge_weight[", e, "] is ", weights[e],
                         ", but edge weights must be finite and not negative. Were they changed "
                         "after the graph was built?");
}

}  // namespace

template <class Weight>
void build_alias(const int64_t* indptr, int64_t num_nodes, const Weight* weights,
                 AliasEntry* table) {
  std::vector<uint64_t> shares;
  std::vector<uint32_t> order;
  SignalWatch signals;
  for (int64_t v = 0; v < num_nodes; ++v) {
    const int64_t begin = indptr[v], end = indptr[v + 1];
    if (begin == end) continue;
    signals.after(end - begin);
    uint64_t least = ~uint64_t(0), greatest = 0;
    for (int64_t e = begin; e < end; ++e) {
      const uint64_t bits = weight_bits(weights[e]);
      least = std::min(least, bits);
      greatest = std::max(greatest, bits);
    }
    if (greatest >= kInfinityBits<Weight>) fail_at_bad_weight(weights, begin, end);
    const uint32_t degree = uint32_t(end - begin);
    AliasEntry* entries = table + begin;
    if (greatest == 0) {
      std::fill_n(entries, degree, kNoNeighbor);
    } else if (least == greatest) {  // the common case of weights that mean nothing
      for (uint32_t i = 0; i < degree; ++i) entries[i] = full_entry(i);
    } else {
      reserve(shares, degree);
      share_out(weights + begin, degree, greatest, shares.data());
      pair_slots(shares.data(), degree, reserve(order, degree), entries);
    }
  }
}

template void build_alias(const int64_t*, int64_t, const float*, AliasEntry*);
template void build_alias(const int64_t*, int64_t, const double*, AliasEntry*);

}  // namespace lg
