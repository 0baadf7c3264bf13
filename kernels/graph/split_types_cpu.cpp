#include "graph/split_types.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/error.h"

namespace lg {
namespace {

void sum_up(int64_t* ptr, int64_t count) {
  for (int64_t i = 0; i < count; ++i) ptr[i + 1] += ptr[i];
}

// By comparisons that do not branch: types of a batch's nodes follow no pattern.
int32_t type_of_node(int64_t node, const int64_t* first_node, int64_t num_types) {
  int32_t type = 0;
  for (int64_t t = 1; t < num_types; ++t) type += node >= first_node[t];
  return type;
}

void check_nodes(const int64_t* nodes, int64_t num_nodes, int64_t end) {
  uint64_t most = 0;
  for (int64_t v = 0; v < num_nodes; ++v) most = std::max(most, uint64_t(nodes[v]));
  if (num_nodes == 0 || most < uint64_t(end)) return;
  const int64_t* bad =
      std::find_if(nodes, nodes + num_nodes, [=](int64_t node) { return !in_range(node, end); });
  fail<GraphFormatError>("nodes[", bad - nodes, "] is ", *bad, ", but the graph's ids lie in [0, ",
                         end, ").");
}

// Edges of one type that lie side by side in the list of a destination.
struct Run {
  int32_t type;
  int64_t dst, begin, end;
};

// Calls use(Run) for all edges, in order.
template <class Use>
void for_runs(const TypedHop& hop, const Use& use) {
  for (int64_t d = 0; d < hop.num_dst; ++d) {
    const int64_t end = hop.indptr[d + 1];
    for (int64_t e = hop.indptr[d]; e < end;) {
      const Run run{hop.edge_type[e], d, e, end};
      while (++e < end && hop.edge_type[e] == run.type) {
      }
      use(Run{run.type, d, run.begin, e});
    }
  }
}

}  // namespace

void split_nodes(const int64_t* nodes, int64_t num_nodes, const int64_t* first_node,
                 int64_t num_types, int64_t* ptr, int32_t* rank, int64_t* position,
                 int64_t* local) {
  check_nodes(nodes, num_nodes, first_node[num_types]);
  std::fill_n(ptr, num_types + 1, 0);
  for (int64_t v = 0; v < num_nodes; ++v) {
    rank[v] = type_of_node(nodes[v], first_node, num_types);
    ++ptr[rank[v] + 1];
  }
  sum_up(ptr, num_types);
  std::vector<int64_t> next(ptr, ptr + num_types);
  for (int64_t v = 0; v < num_nodes; ++v) {
    const int32_t type = rank[v];
    const int64_t to = next[size_t(type)]++;
    rank[v] = int32_t(to);
    position[to] = v;
    local[to] = nodes[v] - first_node[type];
  }
}

void split_edges(const TypedHop& hop, const TypedNodes& nodes, const EdgeEnds& ends,
                 const int64_t* begin, int64_t* ptr, int32_t* indptrs, int32_t* sources,
                 int64_t* edge_ids, int64_t* position) {
  check_indptr(hop);
  const EdgeSplit split(hop, nodes, ends);
  std::fill_n(ptr, ends.num_types + 1, 0);
  for_runs(hop, [&](const Run& run) {
    const int64_t place = split.place_of_dst(run.begin, run.dst), count = run.end - run.begin;
    ptr[run.type + 1] += count;
    indptrs[begin[run.type] + place + 1] += int32_t(count);
  });
  sum_up(ptr, ends.num_types);
  for (int64_t kind = 0; kind < ends.num_types; ++kind) {
    std::partial_sum(indptrs + begin[kind], indptrs + begin[kind + 1], indptrs + begin[kind]);
  }
  std::vector<int64_t> next(ptr, ptr + ends.num_types);
  for_runs(hop, [&](const Run& run) {
    const int64_t to = next[size_t(run.type)];
    for (int64_t e = run.begin; e < run.end; ++e) {
      sources[to + e - run.begin] = int32_t(split.place_of_src(e));
    }
    if (edge_ids) {
      std::copy(hop.edge_ids + run.begin, hop.edge_ids + run.end, edge_ids + to);
    }
    if (position) std::iota(position + to, position + to + run.end - run.begin, run.begin);
    next[size_t(run.type)] += run.end - run.begin;
  });
}

}  // namespace lg
