// Edges come out grouped by destination and otherwise in their order; ids that are no nodes are
// refused.
#include "graph/coo_to_csc.h"

#include <numeric>

#include "fuzz/graphs.h"
#include "fuzz/target.h"

namespace lg::fuzz {
namespace {

template <class Id>
Exact<Id> random_ends(Choices& choose, int64_t num_edges, int64_t num_nodes) {
  Exact<Id> ends(num_edges);
  const int64_t reach = 1 + choose.size(num_nodes - 1);
  for (int64_t e = 0; e < num_edges; ++e) ends[e] = Id(num_nodes - 1 - choose.below(reach));
  if (num_edges && choose.one_in(8)) ends[choose.below(num_edges)] = bad_id<Id>(choose, num_nodes);
  return ends;
}

template <class Id>
bool all_in_range(const Exact<Id>& ends, int64_t num_nodes) {
  return std::all_of(ends.begin(), ends.end(), [&](Id id) { return in_range(id, num_nodes); });
}

template <class Src, class Dst>
void convert(Choices& choose) {
  const int64_t num_nodes = random_num_nodes(choose);
  const int64_t num_edges = num_nodes == 0 ? 0 : choose.size(8 * num_nodes);
  const Exact<Src> src = random_ends<Src>(choose, num_edges, std::max<int64_t>(num_nodes, 1));
  const Exact<Dst> dst = random_ends<Dst>(choose, num_edges, std::max<int64_t>(num_nodes, 1));
  const bool wants_order = choose.flag();
  Exact<int64_t> indptr(num_nodes + 1, -7), order(wants_order ? num_edges : 0, -7);
  Exact<Src> indices(num_edges, -7);
  const Outcome outcome = outcome_of([&] {
    coo_to_csc(src.data(), dst.data(), num_edges, num_nodes, indptr.data(), indices.data(),
               wants_order ? order.data() : nullptr);
  });
  if (!all_in_range(src, num_nodes) || !all_in_range(dst, num_nodes)) {
    expect(outcome == Outcome::kGraphFormatError, "ids out of range: ", outcome);
    return;
  }
  expect(outcome == Outcome::kDone, "sound edges: ", outcome);
  std::vector<int64_t> edges(size_t(num_edges), 0);
  std::iota(edges.begin(), edges.end(), 0);
  std::stable_sort(edges.begin(), edges.end(),
                   [&](int64_t a, int64_t b) { return dst[a] < dst[b]; });
  expect(indptr[0] == 0 && indptr[num_nodes] == num_edges, "indptr does not span the edges");
  for (int64_t v = 0; v < num_nodes; ++v) {
    expect(indptr[v] <= indptr[v + 1], "indptr falls after node ", v);
    for (int64_t i = indptr[v]; i < indptr[v + 1]; ++i) {
      const int64_t edge = edges[size_t(i)];
      expect(dst[edge] == v && indices[i] == src[edge], "position ", i, " is not edge ", edge);
      expect(!wants_order || order[i] == edge, "order[", i, "] is ", order[i], ", not ", edge);
    }
  }
}

}  // namespace

LG_FUZZ_TARGET(coo_to_csc) {
  if (choose.flag()) {
    choose.flag() ? convert<int32_t, int32_t>(choose) : convert<int32_t, int64_t>(choose);
  } else {
    choose.flag() ? convert<int64_t, int32_t>(choose) : convert<int64_t, int64_t>(choose);
  }
}

}  // namespace lg::fuzz
