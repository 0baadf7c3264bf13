// Open nodes vote, then the rest is settled: every node has a part that may own it, and counts are right.
#include "partition/vote_nodes.h"

#include "fuzz/exact.h"
#include "fuzz/graphs.h"
#include "fuzz/target.h"
#include "partition/settle_nodes.h"

namespace lg::fuzz {
namespace {

void expect_counted(const Exact<int32_t>& part, const Exact<int64_t>& num_own, const char* after) {
  std::vector<int64_t> counted(static_cast<size_t>(num_own.size()));
  for (int64_t v = 0; v < part.size(); ++v) {
    if (part[v] >= 0) ++counted[size_t(part[v])];
  }
  for (int64_t p = 0; p < num_own.size(); ++p) {
    expect(num_own[p] == counted[size_t(p)], after, ": part ", p, " owns ", num_own[p]);
  }
}

template <class Index>
void check(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const int64_t num_nodes = graph.num_nodes(), num_parts = choose.between(1, 64);
  Exact<uint8_t> open(num_nodes);
  Exact<uint64_t> held(num_nodes);
  Exact<int32_t> part(num_nodes, -1);
  Exact<int64_t> num_own(num_parts);
  std::vector<int32_t> given(static_cast<size_t>(num_nodes), -1);
  for (int64_t v = 0; v < num_nodes; ++v) {
    held[v] = choose.flag() ? choose.wide() : 0;
    if (choose.flag()) given[size_t(v)] = part[v] = int32_t(choose.below(num_parts));
    if (part[v] >= 0) ++num_own[part[v]];
    open[v] = part[v] < 0 || choose.flag();
  }
  const uint64_t* const holders = choose.flag() ? held.data() : nullptr;
  const int64_t capacity = choose.size(num_nodes);
  Voters voters{open.data(), holders, part.data(), num_own.data(), num_parts, capacity};
  const int64_t begin = choose.between(0, num_nodes), end = choose.between(begin, num_nodes);
  vote_nodes(graph.csc(), begin, end, voters);
  expect_counted(part, num_own, "votes");
  for (int64_t v = 0; v < num_nodes; ++v) {
    if (!open[v] || v < begin || v >= end) {
      expect(part[v] == given[size_t(v)], "node ", v, " was moved");
    }
  }
  settle_nodes(holders, num_nodes, part.data(), num_own.data(), num_parts);
  expect_counted(part, num_own, "settling");
  const uint64_t all = ~uint64_t(0) >> (64 - num_parts);
  for (int64_t v = 0; v < num_nodes; ++v) {
    expect(part[v] >= 0 && part[v] < num_parts, "node ", v, " is in part ", part[v]);
    const uint64_t among = holders == nullptr ? 0 : holders[v] & all;
    const bool stayed = part[v] == given[size_t(v)];
    expect(stayed || among == 0 || (among >> part[v] & 1), "node ", v, " is not held");
  }
}

}  // namespace

LG_FUZZ_TARGET(vote_nodes) { choose.flag() ? check<int32_t>(choose) : check<int64_t>(choose); }

}  // namespace lg::fuzz
