#include "bind/bind.h"
#include "graph/list_edges.h"

namespace lg::bind {
namespace {

TypedHop hop_of(const Array<const int32_t>& indptr, const Array<const int32_t>& indices,
                const Array<const int64_t>& edge_ids, const int32_t* edge_type = nullptr) {
  return {indptr.data(),
          indices.data(),
          edge_type,
          edge_ids.data(),
          int64_t(indptr.size()) - 1,
          int64_t(indices.size())};
}

}  // namespace

LG_BIND_INDEX(Number, m) {
  m.def(
      "list_edges",
      [](Array<const int32_t> indptr, Array<const int32_t> indices, Array<const int64_t> edge_ids,
         Maybe<Number> order, int64_t num_graph_edges, Array<int64_t> edge_index,
         Array<int64_t> ids) {
        list_edges(hop_of(indptr, indices, edge_ids),
                   EdgeOrder<Number>{data(order), num_graph_edges}, edge_index.data(), ids.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "edge_ids"_a.noconvert(),
      "order"_a.noconvert().none(), "num_graph_edges"_a, "edge_index"_a.noconvert(),
      "ids"_a.noconvert(), NoGil());
  m.def(
      "split_edge_list",
      [](Array<const int32_t> indptr, Array<const int32_t> indices, Array<const int32_t> edge_type,
         Array<const int64_t> edge_ids, Maybe<Number> order, int64_t num_graph_edges,
         Array<const int32_t> rank, Array<const int64_t> node_ptr, Array<const int32_t> src_type,
         Array<const int32_t> dst_type, Array<const int64_t> num_dst, Array<int64_t> counts,
         Array<int64_t> ptr, Array<int64_t> edge_index, Array<int64_t> ids) {
        const TypedNodes nodes{rank.data(), node_ptr.data(), int64_t(rank.size()),
                               int64_t(node_ptr.size()) - 1};
        const EdgeEnds types{src_type.data(), dst_type.data(), int64_t(src_type.size())};
        split_edge_list(hop_of(indptr, indices, edge_ids, edge_type.data()), nodes, types,
                        EdgeOrder<Number>{data(order), num_graph_edges}, num_dst.data(),
                        int64_t(num_dst.size()), counts.data(), ptr.data(), edge_index.data(),
                        ids.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "edge_type"_a.noconvert(),
      "edge_ids"_a.noconvert(), "order"_a.noconvert().none(), "num_graph_edges"_a,
      "rank"_a.noconvert(), "node_ptr"_a.noconvert(), "src_type"_a.noconvert(),
      "dst_type"_a.noconvert(), "num_dst"_a.noconvert(), "counts"_a.noconvert(),
      "ptr"_a.noconvert(), "edge_index"_a.noconvert(), "ids"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
