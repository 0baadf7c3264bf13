// A search finds what a plain one does, however long the lists of roots, seeds and edges are.
#include "orders/breadth_first.h"

#include <algorithm>
#include <deque>

#include "fuzz/exact.h"
#include "fuzz/graphs.h"
#include "fuzz/target.h"

namespace lg::fuzz {
namespace {

template <class Index>
std::vector<int32_t> plain_search(const SearchRequest<Index>& request) {
  std::vector<int32_t> found;
  std::vector<bool> seen(size_t(request.graph.num_nodes));
  std::deque<int64_t> queue;
  const auto reach = [&](int64_t node) {
    if (seen[size_t(node)]) return;
    seen[size_t(node)] = true;
    queue.push_back(node);
    if (request.position[node] >= 0) found.push_back(request.position[node]);
  };
  for (int64_t r = 0; r < request.num_roots; ++r) {
    reach(request.roots[r]);
    for (; !queue.empty(); queue.pop_front()) {
      for (const Csc<Index>* graph : {&request.graph, request.reversed}) {
        if (graph == nullptr) continue;
        const int64_t node = queue.front();
        for (int64_t e = graph->indptr[node]; e < graph->indptr[node + 1]; ++e) {
          reach(graph->indices[e]);
        }
      }
    }
  }
  found.resize(std::min(found.size(), size_t(request.num_seeds)));
  return found;
}

template <class Index>
void check(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const int64_t num_nodes = graph.num_nodes();
  Exact<int32_t> position(num_nodes, -1);
  int32_t num_marked = 0;
  for (int64_t v = 0; v < num_nodes; ++v) {
    if (choose.flag()) position[v] = num_marked++;
  }
  Exact<int64_t> roots(num_nodes == 0 ? 0 : choose.size(100));
  for (int64_t r = 0; r < roots.size(); ++r) roots[r] = choose.below(num_nodes);
  // Fewer or more seeds than there are: the search must stay within what it may write.
  const int64_t num_seeds = std::max<int64_t>(num_marked + choose.between(-2, 2), 0);
  Exact<int32_t> order(num_seeds), tree(num_seeds);
  // Its own reverse will do: what matters is that both lists are gone through.
  const Csc<Index> csc = graph.csc();
  const SearchRequest<Index> request{
      csc, choose.flag() ? &csc : nullptr, position.data(), num_seeds, roots.data(), roots.size()};
  const bool spoiled =
      roots.size() > 0 && num_marked >= num_seeds && num_seeds > 0 && choose.below(8) == 0;
  if (spoiled) {
    roots[0] = bad_id<int64_t>(choose, num_nodes);
    const Outcome outcome = outcome_of([&] { breadth_first(request, order.data(), tree.data()); });
    expect(outcome == Outcome::kSeedError, "a root that is no node: ", outcome);
    return;
  }
  const std::vector<int32_t> wanted = plain_search(request);
  const int64_t found = breadth_first(request, order.data(), tree.data());
  expect(found == int64_t(wanted.size()), found, " seeds instead of ", wanted.size());
  expect(std::equal(wanted.begin(), wanted.end(), order.begin()), "another order");
  for (int64_t i = 0; i < found; ++i) {
    const int32_t before = i == 0 ? 0 : tree[i - 1];
    expect(tree[i] == before || (i > 0 && tree[i] == before + 1), "tree ", tree[i], " after ",
           before);
  }
}

}  // namespace

LG_FUZZ_TARGET(breadth_first) { choose.flag() ? check<int32_t>(choose) : check<int64_t>(choose); }

}  // namespace lg::fuzz
