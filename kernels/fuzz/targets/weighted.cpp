// Alias tables hand out shares as the weights ask; neighbours of weight zero are never drawn, and
// others without repeats where they are not replaced.
#include <cmath>
#include <set>

#include "build_alias/build_alias.h"
#include "fuzz/structure.h"
#include "sample_weighted/sample_weighted.h"

namespace lg::fuzz {
namespace {

// The weights of one node, and its part of the table.
template <class Weight>
void expect_shares(const Weight* weights, const AliasEntry* entries, int64_t degree) {
  long double sum = 0;
  for (int64_t i = 0; i < degree; ++i) sum += weights[i];
  std::vector<uint64_t> shares(size_t(degree), 0);
  for (int64_t i = 0; i < degree; ++i) {
    if (sum == 0) {
      expect(entries[i] == kNoNeighbor, "slot ", i, " of a node without weights");
      continue;
    }
    const uint32_t alias = alias_of(entries[i]);
    expect(alias < degree, "slot ", i, " of ", degree, " has the alias ", alias);
    shares[size_t(i)] += threshold_of(entries[i]);
    shares[alias] += kSlotShares - threshold_of(entries[i]);
  }
  for (int64_t i = 0; i < degree && sum > 0; ++i) {
    expect((shares[size_t(i)] == 0) == (weights[i] == 0) &&
               (threshold_of(entries[i]) == 0) == (weights[i] == 0),
           "weight ", weights[i], " has ", shares[size_t(i)], " shares");
    const long double got = shares[size_t(i)] / (degree * 0x1p32L), wanted = weights[i] / sum;
    expect(std::fabs(got - wanted) <= 0x1p-32L + degree * 0x1p-61L, "weight ", weights[i],
           " is drawn with probability ", double(got), ", not ", double(wanted));
  }
}

template <class Index, class Weight>
void sample(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  Exact<Weight> weights(graph.indices.size());
  for (int64_t e = 0; e < weights.size(); ++e) weights[e] = random_weight<Weight>(choose);
  const bool is_bad = weights.size() && choose.one_in(20);
  if (is_bad) {
    weights[choose.below(weights.size())] = choose.one_of<Weight>(
        {Weight(-1), Weight(INFINITY), Weight(NAN), -std::numeric_limits<Weight>::denorm_min()});
  }
  Exact<AliasEntry> table(weights.size());
  const Outcome outcome = outcome_of(
      [&] { build_alias(graph.indptr.data(), graph.num_nodes(), weights.data(), table.data()); });
  expect(outcome == (is_bad ? Outcome::kGraphFormatError : Outcome::kDone), "weights: ", outcome);
  if (is_bad) return;
  for (int64_t v = 0; v < graph.num_nodes(); ++v) {
    const int64_t begin = graph.indptr[v];
    expect_shares(weights.data() + begin, table.data() + begin, graph.indptr[v + 1] - begin);
  }

  Workspace workspace = random_workspace(choose, graph.num_nodes());
  for (int64_t left = choose.between(1, 3); left > 0; --left) {
    WeightedRequest<Index> request{};
    request.graph = graph.csc();
    request.runs = {graph.indptr.data()};
    request.table = table.data();
    request.num_types = 1;
    request.fanouts.resize(size_t(choose.size(3)));
    for (int64_t& fanout : request.fanouts) {
      fanout = choose.one_of<int64_t>({-1, 1, 2, 3, 5, 16, 17, 38, 39, 65, 1200});
    }
    request.replace = choose.flag();
    request.expand = choose.flag() ? Expand::kAll : Expand::kNew;
    request.edge_ids = choose.flag();
    const auto expect_drawn = [&](const SampleLayout& layout, const uint8_t* arena) {
      for (size_t h = 0; h < layout.hops.size() && request.edge_ids; ++h) {
        const HopLayout& hop = layout.hops[h];
        const auto* ids = reinterpret_cast<const int64_t*>(arena + hop.edge_ids_offset);
        const auto* indptr = reinterpret_cast<const int32_t*>(arena + hop.indptr_offset);
        for (int64_t dst = 0; dst < hop.num_dst; ++dst) {
          std::set<int64_t> drawn;
          for (int64_t e = indptr[dst]; e < indptr[dst + 1]; ++e) {
            expect(weights[ids[e]] > 0, "edge ", ids[e], " of weight zero is drawn");
            expect(drawn.insert(ids[e]).second || request.replace, "edge ", ids[e], " again");
          }
        }
      }
    };
    request_pure_batch(choose, workspace, graph.csc(), request.fanouts.size(),
                       [&](Workspace& used, const BatchRequest& batch) {
                         request.batch = batch;
                         const SampleLayout layout = sample_weighted(used, request);
                         expect_drawn(layout, batch.arena);
                         return layout;
                       });
  }
}

}  // namespace

LG_FUZZ_TARGET(sample_weighted) {
  if (choose.flag()) {
    choose.flag() ? sample<int32_t, float>(choose) : sample<int32_t, double>(choose);
  } else {
    choose.flag() ? sample<int64_t, float>(choose) : sample<int64_t, double>(choose);
  }
}

}  // namespace lg::fuzz
