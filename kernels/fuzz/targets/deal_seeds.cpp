// A stream keeps to its quotas and counts what parts hold, however it is cut into calls.
#include "partition/deal_seeds.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "fuzz/exact.h"
#include "fuzz/graphs.h"
#include "fuzz/target.h"

namespace lg::fuzz {
namespace {

// A seed and what leads to it.
template <class Index>
std::set<int64_t> neighborhood(const Csc<Index>& graph, int64_t seed, int64_t hops) {
  std::set<int64_t> near{seed};
  for (int64_t hop = 0; hop < hops; ++hop) {
    std::set<int64_t> further = near;
    for (const int64_t node : near) {
      further.insert(graph.indices + graph.indptr[node], graph.indices + graph.indptr[node + 1]);
    }
    near = further;
  }
  return near;
}

template <class Index>
void check(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const Csc<Index> csc = graph.csc();
  const int64_t num_nodes = csc.num_nodes, num_words = (num_nodes + 63) / 64;
  const int64_t num_parts = choose.between(1, 64);
  Exact<int8_t> part(num_nodes, -1);
  Exact<int64_t> quotas(num_parts), num_seeds(num_parts), num_held(num_parts);
  Exact<uint64_t> held(num_parts * num_words), seen(num_words);
  std::vector<int64_t> order(static_cast<size_t>(num_nodes));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t v = num_nodes - 1; v > 0; --v) {
    std::swap(order[size_t(v)], order[size_t(choose.below(v + 1))]);
  }
  Exact<int64_t> seeds(std::min(num_nodes, choose.size(60)));
  for (int64_t i = 0; i < seeds.size(); ++i) {
    seeds[i] = order[size_t(i)];
    ++quotas[choose.below(num_parts)];
  }
  const DealSettings settings{choose.flag() ? Overlap::kNodes : Overlap::kSeeds,
                              choose.between(1, 3), choose.size(65535), choose.size(65535),
                              choose.size(1000) + 1};
  DealState state{num_parts,       part.data(), num_seeds.data(),
                  num_held.data(), held.data(), seen.data()};
  if (seeds.size() > 0 && choose.one_in(8)) {
    seeds[0] = choose.flag() ? bad_id<int64_t>(choose, num_nodes) : seeds[0];
    part[order[0]] = 0;  // where it is no bad id, it has a part already
    const Outcome outcome = outcome_of(
        [&] { deal_seeds(csc, seeds.data(), seeds.size(), quotas.data(), settings, state); });
    expect(outcome == Outcome::kSeedError, "a bad seed: ", outcome);
    return;
  }
  for (int64_t done = 0; done < seeds.size();) {
    const int64_t count =
        deal_seeds(csc, seeds.data() + done, seeds.size() - done, quotas.data(), settings, state);
    expect(count >= 1 && count <= seeds.size() - done, count, " seeds after ", done);
    done += count;
  }
  std::vector<std::set<int64_t>> wanted(static_cast<size_t>(num_parts));
  for (int64_t i = 0; i < seeds.size(); ++i) {
    const int8_t chosen = part[seeds[i]];
    expect(chosen >= 0 && chosen < num_parts, "seed ", i, " is in part ", int64_t(chosen));
    wanted[size_t(chosen)].merge(neighborhood(csc, seeds[i], settings.hops));
  }
  for (int64_t p = 0; p < num_parts; ++p) {
    expect(num_seeds[p] == quotas[p], "part ", p, " has ", num_seeds[p], " seeds");
    expect(num_held[p] == int64_t(wanted[size_t(p)].size()), "part ", p, " holds ", num_held[p]);
    for (int64_t v = 0; v < num_nodes; ++v) {
      const bool holds = held[p * num_words + v / 64] >> (v % 64) & 1;
      expect(holds == (wanted[size_t(p)].count(v) == 1), "node ", v, " of part ", p);
    }
  }
  for (int64_t w = 0; w < num_words; ++w) expect(seen[w] == 0, "word ", w, " is left");
}

}  // namespace

LG_FUZZ_TARGET(deal_seeds) { choose.flag() ? check<int32_t>(choose) : check<int64_t>(choose); }

}  // namespace lg::fuzz
