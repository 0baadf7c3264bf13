#include "bind/bind.h"
#include "graph/split_types.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "split_nodes",
      [](Array<const int64_t> nodes, Array<const int64_t> first_node, Array<int64_t> ptr,
         Array<int32_t> rank, Array<int64_t> position, Array<int64_t> local) {
        split_nodes(nodes.data(), int64_t(nodes.size()), first_node.data(),
                    int64_t(first_node.size()) - 1, ptr.data(), rank.data(), position.data(),
                    local.data());
      },
      "nodes"_a.noconvert(), "first_node"_a.noconvert(), "ptr"_a.noconvert(), "rank"_a.noconvert(),
      "position"_a.noconvert(), "local"_a.noconvert(), NoGil());
  m.def(
      "split_edges",
      [](Array<const int32_t> indptr, Array<const int32_t> indices, Array<const int32_t> edge_type,
         std::optional<Array<const int64_t>> edge_ids, Array<const int32_t> rank,
         Array<const int64_t> node_ptr, Array<const int32_t> src_type,
         Array<const int32_t> dst_type, Array<const int64_t> begin, Array<int64_t> ptr,
         Array<int32_t> indptrs, Array<int32_t> sources, std::optional<Array<int64_t>> ids_by_type,
         std::optional<Array<int64_t>> position) {
        const TypedHop hop{indptr.data(),
                           indices.data(),
                           edge_type.data(),
                           edge_ids ? edge_ids->data() : nullptr,
                           int64_t(indptr.size()) - 1,
                           int64_t(indices.size())};
        const TypedNodes nodes{rank.data(), node_ptr.data(), int64_t(rank.size()),
                               int64_t(node_ptr.size()) - 1};
        const EdgeEnds ends{src_type.data(), dst_type.data(), int64_t(src_type.size())};
        split_edges(hop, nodes, ends, begin.data(), ptr.data(), indptrs.data(), sources.data(),
                    ids_by_type ? ids_by_type->data() : nullptr,
                    position ? position->data() : nullptr);
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "edge_type"_a.noconvert(),
      "edge_ids"_a.noconvert().none(), "rank"_a.noconvert(), "node_ptr"_a.noconvert(),
      "src_type"_a.noconvert(), "dst_type"_a.noconvert(), "begin"_a.noconvert(),
      "ptr"_a.noconvert(), "indptrs"_a.noconvert(), "sources"_a.noconvert(),
      "ids_by_type"_a.noconvert().none(), "position"_a.noconvert().none(), NoGil());
}

}  // namespace lg::bind
