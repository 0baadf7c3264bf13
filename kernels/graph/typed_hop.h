// typed_hop.h: the edges of a hop whose nodes and edges have types, and the checks of both.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/error.h"

namespace lg {

struct TypedHop {
  const int32_t* indptr;     // [D + 1]
  const int32_t* indices;    // [E]
  const int32_t* edge_type;  // [E], or nullptr
  const int64_t* edge_ids;   // [E], or nullptr
  int64_t num_dst, num_edges;
};

struct TypedNodes {
  const int32_t* rank;  // [V], of split_nodes
  const int64_t* ptr;   // [T + 1], likewise
  int64_t num_nodes, num_types;
};

struct EdgeEnds {
  const int32_t* src;  // [K], the node type that edges of a type come from
  const int32_t* dst;  // [K], and the one that they end in
  int64_t num_types;
};

inline void check_indptr(const TypedHop& hop) {
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

// Finds the ends of edges among the nodes of their types.
class EdgeSplit {
 public:
  EdgeSplit(const TypedHop& hop, const TypedNodes& nodes, const EdgeEnds& ends)
      : hop_(hop), nodes_(nodes), ends_(ends) {
    for (int64_t k = 0; k < ends.num_types; ++k) {
      sources_.push_back({nodes.ptr[ends.src[k]], count(ends.src[k])});
    }
  }

  // The place of a destination among those of its type, by one of its edges.
  int64_t place_of_dst(int64_t edge, int64_t dst) const {
    check_type(edge);
    const int32_t kind = hop_.edge_type[edge], type = ends_.dst[kind];
    const int64_t place = nodes_.rank[dst] - nodes_.ptr[type];
    if (!in_range(place, count(type))) fail_ends(edge, dst, kind);
    return place;
  }

  // Another edge of a destination has to end in the same type as one does.
  void check_dst(int64_t edge, int64_t one, int64_t dst) const {
    const int32_t kind = hop_.edge_type[edge];
    if (ends_.dst[kind] != ends_.dst[hop_.edge_type[one]]) fail_ends(edge, dst, kind);
  }

  // The place of an edge's source among those of its type.
  int64_t place_of_src(int64_t edge) const {
    const int32_t kind = hop_.edge_type[edge];
    const NodesOfType& sources = sources_[size_t(kind)];
    const int64_t place = nodes_.rank[src_of(edge)] - sources.first;
    if (!in_range(place, sources.count)) fail_ends(edge, dst_of(edge), kind);
    return place;
  }

  void check_type(int64_t edge) const {
    const int32_t type = hop_.edge_type[edge];
    if (!in_range(type, ends_.num_types)) {
      fail<GraphFormatError>("edge ", edge, " of the hop has the type ", type,
                             ", but the graph's types lie in [0, ", ends_.num_types, ").");
    }
  }

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

 private:
  int64_t dst_of(int64_t edge) const {
    return std::upper_bound(hop_.indptr, hop_.indptr + hop_.num_dst + 1, int32_t(edge)) -
           hop_.indptr - 1;
  }

  int64_t type_of(int64_t node) const {
    const int64_t* end = nodes_.ptr + nodes_.num_types + 1;
    return std::upper_bound(nodes_.ptr, end, nodes_.rank[node]) - nodes_.ptr - 1;
  }

  struct NodesOfType {
    int64_t first, count;
  };

  const TypedHop hop_;
  const TypedNodes nodes_;
  const EdgeEnds ends_;
  std::vector<NodesOfType> sources_;  // by edge type
};

}  // namespace lg
