#include "partition/join_blocks.h"

#include <algorithm>
#include <vector>

#include "common/edge_labels.h"
#include "common/fetch.h"

namespace lg {

template <class Index>
void join_blocks(const Csc<Index>& graph, const int32_t* block_of, const BlockSizes& blocks,
                 int32_t* joins) {
  std::vector<int64_t> lead(size_t(blocks.num_blocks), 0);
  std::fill_n(joins, blocks.num_blocks, -1);
  const auto vote = [&](int32_t small, int32_t large) {
    if (lead[size_t(small)] == 0) joins[small] = large;
    lead[size_t(small)] += joins[small] == large ? 1 : -1;
  };
  for_edge_labels(graph, block_of, blocks.num_blocks,
                  [&](int32_t of_node, const int32_t* of_neighbors, int64_t count) {
                    const bool is_own_large = blocks.is_large[of_node] != 0;
                    for (int64_t i = 0; i < count; ++i) {
                      fetch_line(&blocks.is_large[of_neighbors[i]]);
                    }
                    for (int64_t i = 0; i < count; ++i) {
                      const int32_t other = of_neighbors[i];
                      if ((blocks.is_large[other] != 0) == is_own_large) continue;
                      is_own_large ? vote(other, of_node) : vote(of_node, other);
                    }
                  });
  std::vector<int64_t>& joined = lead;  // nodes of each block: the votes have been counted
  std::copy_n(blocks.sizes, blocks.num_blocks, joined.begin());
  for (int64_t small = 0; small < blocks.num_blocks; ++small) {
    if (joins[small] < 0) continue;
    int64_t& size = joined[size_t(joins[small])];
    if (size + blocks.sizes[small] > blocks.most) {
      joins[small] = -1;
    } else {
      size += blocks.sizes[small];
    }
  }
}

template void join_blocks(const Csc<int32_t>&, const int32_t*, const BlockSizes&, int32_t*);
template void join_blocks(const Csc<int64_t>&, const int32_t*, const BlockSizes&, int32_t*);

}  // namespace lg
