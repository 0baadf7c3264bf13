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

void check_edge(const TypedHop& hop, const TypedNodes& nodes, const EdgeEnds& ends, int64_t dst,
                int64_t edge) {
  const int32_t kind = hop.edge_type[edge], src = hop.indices[edge];
  if (!in_range(kind, ends.num_types)) {
    fail<GraphFormatError>("edge ", edge, " of the hop has the type ", kind,
                           ", but the graph's types lie in [0, ", ends.num_types, ").");
  }
  if (!in_range(src, nodes.num_nodes)) {
    fail<GraphFormatError>("edge ", edge, " of the hop comes from node ", src,
                           ", but the mini-batch has ", nodes.num_nodes, " nodes.");
  }
  if (nodes.type[src] != ends.src[kind] || nodes.type[dst] != ends.dst[kind]) {
    fail<GraphFormatError>("edge ", edge, " of the hop leads from a node of type ", nodes.type[src],
                           " to one of type ", nodes.type[dst], ", but its edge type ", kind,
                           " leads from ", ends.src[kind], " to ", ends.dst[kind], ".");
  }
}

}  // namespace

void split_nodes(const int64_t* nodes, int64_t num_nodes, const int64_t* first_node,
                 int64_t num_types, int32_t* type, int32_t* place, int64_t* ptr, int64_t* position,
                 int64_t* local) {
  std::fill_n(ptr, num_types + 1, 0);
  for (int64_t v = 0; v < num_nodes; ++v) {
    if (!in_range(nodes[v], first_node[num_types])) {
      fail<GraphFormatError>("nodes[", v, "] is ", nodes[v], ", but the graph's ids lie in [0, ",
                             first_node[num_types], ").");
    }
    const int64_t* after = std::upper_bound(first_node, first_node + num_types + 1, nodes[v]);
    type[v] = int32_t(after - first_node - 1);
    place[v] = int32_t(ptr[type[v] + 1]++);
  }
  sum_up(ptr, num_types);
  for (int64_t v = 0; v < num_nodes; ++v) {
    const int64_t to = ptr[type[v]] + place[v];
    position[to] = v;
    local[to] = nodes[v] - first_node[type[v]];
  }
}

void split_edges(const TypedHop& hop, const TypedNodes& nodes, const EdgeEnds& ends,
                 const int64_t* begin, int64_t* ptr, int32_t* indptrs, int32_t* sources,
                 int64_t* position) {
  std::fill_n(ptr, ends.num_types + 1, 0);
  if (hop.indptr[0] != 0 || hop.indptr[hop.num_dst] != hop.num_edges) {
    fail<GraphFormatError>("indptr of the hop spans [", hop.indptr[0], ", ",
                           hop.indptr[hop.num_dst], "), but there are ", hop.num_edges, " edges.");
  }
  for (int64_t d = 0; d < hop.num_dst; ++d) {
    if (hop.indptr[d] > hop.indptr[d + 1] || hop.indptr[d + 1] > hop.num_edges) {
      fail<GraphFormatError>("indptr of the hop does not ascend at ", d, ".");
    }
    for (int64_t e = hop.indptr[d]; e < hop.indptr[d + 1]; ++e) {
      check_edge(hop, nodes, ends, d, e);
      const int32_t kind = hop.edge_type[e];
      ++ptr[kind + 1];
      ++indptrs[begin[kind] + nodes.place[d] + 1];
    }
  }
  sum_up(ptr, ends.num_types);
  for (int64_t kind = 0; kind < ends.num_types; ++kind) {
    std::partial_sum(indptrs + begin[kind], indptrs + begin[kind + 1], indptrs + begin[kind]);
  }
  std::vector<int64_t> next(ptr, ptr + ends.num_types);
  for (int64_t e = 0; e < hop.num_edges; ++e) {
    const int64_t to = next[size_t(hop.edge_type[e])]++;
    sources[to] = nodes.place[hop.indices[e]];
    position[to] = e;
  }
}

}  // namespace lg
