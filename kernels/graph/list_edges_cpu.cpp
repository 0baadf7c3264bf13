#include "graph/list_edges.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/error.h"
#include "common/fetch.h"

namespace lg {
namespace {

constexpr int64_t kAhead = 64;  // edges whose numbers are under way: each is a miss of the caches

void check_edge_ids(const TypedHop& hop, int64_t num_edges) {
  uint64_t most = 0;
  for (int64_t e = 0; e < hop.num_edges; ++e) most = std::max(most, uint64_t(hop.edge_ids[e]));
  if (hop.num_edges == 0 || most < uint64_t(num_edges)) return;
  const int64_t* bad = std::find_if(hop.edge_ids, hop.edge_ids + hop.num_edges,
                                    [=](int64_t id) { return !in_range(id, num_edges); });
  fail<GraphFormatError>("edge_ids[", bad - hop.edge_ids, "] is ", *bad, ", but the graph has ",
                         num_edges, " edges.");
}

// Numbers of edges, asked for in the order of the hop.
template <class Number>
class Numbers {
 public:
  Numbers(const TypedHop& hop, const EdgeOrder<Number>& order)
      : ids_(hop.edge_ids), numbers_(order.numbers), last_(hop.num_edges - 1) {}

  int64_t of(int64_t edge) const {
    if (numbers_ == nullptr) return ids_[edge];
    fetch_line(&numbers_[ids_[std::min(edge + kAhead, last_)]]);
    return int64_t(numbers_[ids_[edge]]);
  }

 private:
  const int64_t* ids_;
  const Number* numbers_;
  int64_t last_;
};

}  // namespace

template <class Number>
void list_edges(const TypedHop& hop, const EdgeOrder<Number>& order, int64_t* edge_index,
                int64_t* ids) {
  check_indptr(hop);
  check_edge_ids(hop, order.num_edges);
  std::copy_n(hop.indices, hop.num_edges, edge_index);
  int64_t* const targets = edge_index + hop.num_edges;
  for (int64_t d = 0; d < hop.num_dst; ++d) {
    std::fill(targets + hop.indptr[d], targets + hop.indptr[d + 1], d);
  }
  const Numbers<Number> numbers(hop, order);
  for (int64_t e = 0; e < hop.num_edges; ++e) ids[e] = numbers.of(e);
}

template <class Number>
void split_edge_list(const TypedHop& hop, const TypedNodes& nodes, const EdgeEnds& types,
                     const EdgeOrder<Number>& order, const int64_t* num_dst, int64_t num_hops,
                     int64_t* counts, int64_t* ptr, int64_t* edge_index, int64_t* ids) {
  check_indptr(hop);
  check_edge_ids(hop, order.num_edges);
  const EdgeSplit split(hop, nodes, types);
  const int64_t num_types = types.num_types;
  std::fill_n(counts, num_hops * num_types, 0);
  std::fill_n(ptr, num_types + 1, 0);
  for (int64_t h = 0, e = 0; h < num_hops; ++h) {
    int64_t* const of_hop = counts + h * num_types;
    for (; e < hop.indptr[num_dst[h]]; ++e) {
      split.check_type(e);
      ++of_hop[hop.edge_type[e]];
    }
    for (int64_t k = 0; k < num_types; ++k) ptr[k + 1] += of_hop[k];
  }
  std::partial_sum(ptr, ptr + num_types + 1, ptr);
  // One column after the other: to write all three at once, to three places a type, takes twice as long,
  // as do branches by runs of a type, which follow no pattern.
  std::vector<int64_t> next(ptr, ptr + num_types);
  const Numbers<Number> numbers(hop, order);
  int64_t* const to = next.data();
  for (int64_t e = 0; e < hop.num_edges; ++e) ids[to[hop.edge_type[e]]++] = numbers.of(e);
  for (int64_t k = 0; k < num_types; ++k) to[k] = 2 * ptr[k];
  for (int64_t e = 0; e < hop.num_edges; ++e) {
    edge_index[to[hop.edge_type[e]]++] = split.place_of_src(e);
  }
  // Where the sources of a type end, its targets begin.
  for (int64_t d = 0; d < hop.num_dst; ++d) {
    const int64_t begin = hop.indptr[d], end = hop.indptr[d + 1];
    if (begin == end) continue;
    const int64_t place = split.place_of_dst(begin, d);
    for (int64_t e = begin; e < end; ++e) {
      split.check_dst(e, begin, d);
      edge_index[to[hop.edge_type[e]]++] = place;
    }
  }
}

#define LG_LIST_EDGES(Number)                                                                \
  template void list_edges(const TypedHop&, const EdgeOrder<Number>&, int64_t*, int64_t*);   \
  template void split_edge_list(const TypedHop&, const TypedNodes&, const EdgeEnds&,         \
                                const EdgeOrder<Number>&, const int64_t*, int64_t, int64_t*, \
                                int64_t*, int64_t*, int64_t*);
LG_LIST_EDGES(int32_t)
LG_LIST_EDGES(int64_t)
#undef LG_LIST_EDGES

}  // namespace lg
