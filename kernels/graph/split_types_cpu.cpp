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

void check_indptr(const TypedHop& hop) {
  if (hop.indptr[0] != 0 || hop.indptr[hop.num_dst] != hop.num_edges) {
    fail<GraphFormatError>("indptr of the hop spans [", hop.indptr[0], ", ",
                           hop.indptr[hop.num_dst], "), but there are ", hop.num_edges, " edges.");
  }
  for (int64_t d = 0; d < hop.num_dst; ++d) {
    if (hop.indptr[d] > hop.indptr[d + 1]) {
      fail<GraphFormatError>("indptr of the hop does not ascend at ", d, ".");
    }
  }
}

class EdgeSplit {
 public:
  EdgeSplit(const TypedHop& hop, const TypedNodes& nodes, const EdgeEnds& ends)
      : hop_(hop), nodes_(nodes), ends_(ends) {}

  // The place of a destination among those of its type.
  int64_t place_of_dst(const Run& run) const {
    if (!in_range(run.type, ends_.num_types)) {
      fail<GraphFormatError>("edge ", run.begin, " of the hop has the type ", run.type,
                             ", but the graph's types lie in [0, ", ends_.num_types, ").");
    }
    const int32_t type = ends_.dst[run.type];
    const int64_t place = nodes_.rank[run.dst] - nodes_.ptr[type];
    if (!in_range(place, count(type))) fail_ends(run.begin, run.dst, run.type);
    return place;
  }

  // Writes the places of a run's sources among those of their type.
  void write_sources(const Run& run, int32_t* to) const {
    const int32_t type = ends_.src[run.type];
    const int64_t first = nodes_.ptr[type], count_of_type = count(type);
    for (int64_t e = run.begin; e < run.end; ++e) {
      const int64_t place = nodes_.rank[src_of(e)] - first;
      if (!in_range(place, count_of_type)) fail_ends(e, run.dst, run.type);
      *to++ = int32_t(place);
    }
  }

 private:
  int64_t count(int32_t type) const { return nodes_.ptr[type + 1] - nodes_.ptr[type]; }

  int32_t src_of(int64_t edge) const {
    const int32_t src = hop_.indices[edge];
    if (!in_range(src, nodes_.num_nodes)) {
      fail<GraphFormatError>("edge ", edge, " of the hop comes from node ", src,
                             ", but the mini-batch has ", nodes_.num_nodes, " nodes.");
    }
    return src;
  }

  [[noreturn]] void fail_ends(int64_t edge, int64_t dst, int32_t kind) const {
    fail<GraphFormatError>("edge ", edge, " of the hop leads from a node of type ",
                           type_of(src_of(edge)), " to one of type ", type_of(dst),
                           ", but its edge type ", kind, " leads from ", ends_.src[kind], " to ",
                           ends_.dst[kind], ".");
  }

  int64_t type_of(int64_t node) const {
    const int64_t* end = nodes_.ptr + nodes_.num_types + 1;
    return std::upper_bound(nodes_.ptr, end, nodes_.rank[node]) - nodes_.ptr - 1;
  }

  const TypedHop hop_;
  const TypedNodes nodes_;
  const EdgeEnds ends_;
};

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
    const int64_t place = split.place_of_dst(run), count = run.end - run.begin;
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
    split.write_sources(run, sources + to);
    if (edge_ids) {
      std::copy(hop.edge_ids + run.begin, hop.edge_ids + run.end, edge_ids + to);
    }
    if (position) std::iota(position + to, position + to + run.end - run.begin, run.begin);
    next[size_t(run.type)] += run.end - run.begin;
  });
}

}  // namespace lg
