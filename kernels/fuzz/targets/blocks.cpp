// Blocks are of all nodes and of no more than they may be; those that join stay so; links are all edges;
// and nodes dealt out are of parts that there are.
#include <numeric>

#include "fuzz/exact.h"
#include "fuzz/graphs.h"
#include "fuzz/target.h"
#include "partition/deal_nodes.h"
#include "partition/grow_blocks.h"
#include "partition/join_blocks.h"
#include "partition/link_blocks.h"

namespace lg::fuzz {
namespace {

// Sizes of the blocks that `block_of` is written with.
template <class Index>
Exact<int32_t> grow(Choices& choose, const Csc<Index>& graph, int32_t* block_of) {
  const int64_t num_nodes = graph.num_nodes, most = 1 + choose.size(100);
  Exact<int64_t> sources(num_nodes == 0 ? 0 : choose.size(20));
  for (int64_t i = 0; i < sources.size(); ++i) sources[i] = choose.below(num_nodes);
  const GrowRequest<Index> request{graph, sources.data(), sources.size(), most};
  Exact<int32_t> sizes(num_nodes);
  if (sources.size() > 0 && choose.one_in(8)) {
    const int64_t good = sources[0];
    sources[0] = bad_id<int64_t>(choose, num_nodes);
    const Outcome outcome = outcome_of([&] { grow_blocks(request, block_of, sizes.data()); });
    expect(outcome == Outcome::kSeedError, "a source that is no node: ", outcome);
    sources[0] = good;
  }
  const int64_t num_blocks = grow_blocks(request, block_of, sizes.data());
  Exact<int32_t> found(num_blocks), counted(num_blocks);
  std::copy_n(sizes.begin(), num_blocks, found.data());
  for (int64_t v = 0; v < num_nodes; ++v) {
    expect(block_of[v] >= 0 && block_of[v] < num_blocks, "node ", v, " is of ", block_of[v]);
    ++counted[block_of[v]];
  }
  for (int64_t b = 0; b < num_blocks; ++b) {
    expect(found[b] == counted[b] && found[b] >= 1 && found[b] <= most, "block ", b, " has ",
           counted[b], " nodes, not ", found[b]);
  }
  return found;
}

template <class Index>
void join(Choices& choose, const Csc<Index>& graph, const int32_t* block_of,
          const Exact<int32_t>& sizes) {
  Exact<uint8_t> is_large(sizes.size());
  for (int64_t b = 0; b < sizes.size(); ++b) is_large[b] = choose.flag();
  const BlockSizes blocks{sizes.data(), is_large.data(), sizes.size(), choose.size(200)};
  Exact<int32_t> joins(sizes.size()), joined(sizes.size());
  join_blocks(graph, block_of, blocks, joins.data());
  for (int64_t b = 0; b < sizes.size(); ++b) {
    if (joins[b] == -1) continue;
    expect(!is_large[b] && is_large[joins[b]], "block ", b, " joins ", joins[b]);
    joined[joins[b]] += sizes[b];
  }
  for (int64_t b = 0; b < sizes.size(); ++b) {
    expect(joined[b] == 0 || joined[b] + sizes[b] <= blocks.most, "block ", b, " has too many");
  }
}

template <class Index>
void check_blocks(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const Csc<Index> csc = graph.csc();
  Exact<int32_t> block_of(graph.num_nodes());
  const Exact<int32_t> sizes = grow(choose, csc, block_of.data());
  join(choose, csc, block_of.data(), sizes);
  const int64_t num_linked = std::min<int64_t>(sizes.size(), 300);
  const bool fits = num_linked == sizes.size();
  Exact<int64_t> counts(num_linked * num_linked);
  const Outcome outcome =
      outcome_of([&] { link_blocks(csc, block_of.data(), num_linked, counts.data()); });
  expect(outcome == (fits ? Outcome::kDone : Outcome::kGraphFormatError), "links: ", outcome);
  const int64_t linked = std::accumulate(counts.begin(), counts.end(), int64_t(0));
  expect(!fits || linked == graph.indices.size(), linked, " links");
}

template <class Index>
void check_deal(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const int64_t num_nodes = graph.num_nodes(), num_parts = 1 + choose.size(20);
  Exact<uint8_t> is_seed(num_nodes);
  Exact<int32_t> part_of(num_nodes);
  for (int64_t v = 0; v < num_nodes; ++v) {
    is_seed[v] = choose.flag();
    part_of[v] = int32_t(choose.below(num_parts + 1) - 1);
  }
  const DealRequest<Index> request{graph.csc(), is_seed.data(), num_parts, 1 + choose.size(1000),
                                   choose.size(1000)};
  if (num_nodes > 0 && choose.one_in(8)) {
    part_of[choose.below(num_nodes)] = int32_t(num_parts + choose.size(1000));
    const Outcome outcome = outcome_of([&] { deal_nodes(request, part_of.data()); });
    expect(outcome == Outcome::kGraphFormatError, "a part that is none: ", outcome);
    return;
  }
  const Exact<int32_t> before(std::vector<int32_t>(part_of.begin(), part_of.end()));
  const int64_t changed = deal_nodes(request, part_of.data());
  int64_t counted = 0;
  for (int64_t v = 0; v < num_nodes; ++v) {
    expect(part_of[v] >= 0 && part_of[v] < num_parts, "node ", v, " is of ", part_of[v]);
    counted += part_of[v] != before[v];
  }
  expect(changed == counted, changed, " changed instead of ", counted);
}

}  // namespace

LG_FUZZ_TARGET(blocks) {
  choose.flag() ? check_blocks<int32_t>(choose) : check_blocks<int64_t>(choose);
}

LG_FUZZ_TARGET(deal_nodes) {
  choose.flag() ? check_deal<int32_t>(choose) : check_deal<int64_t>(choose);
}

}  // namespace lg::fuzz
