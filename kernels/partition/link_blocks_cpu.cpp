#include "partition/link_blocks.h"

#include <algorithm>

#include "common/edge_labels.h"
#include "common/fetch.h"

namespace lg {

template <class Index>
void link_blocks(const Csc<Index>& graph, const int32_t* block_of, int64_t num_blocks,
                 int64_t* counts) {
  std::fill_n(counts, num_blocks * num_blocks, 0);
  for_edge_labels(graph, block_of, num_blocks,
                  [&](int32_t of_node, const int32_t* of_neighbors, int64_t count) {
                    int64_t* row = counts + of_node * num_blocks;
                    // A row has its place in no cache: all that the list needs of it is fetched at once.
                    for (int64_t i = 0; i < count; ++i) {
                      fetch_line(&row[of_neighbors[i]]);
                    }
                    for (int64_t i = 0; i < count; ++i) ++row[of_neighbors[i]];
                  });
}

template void link_blocks(const Csc<int32_t>&, const int32_t*, int64_t, int64_t*);
template void link_blocks(const Csc<int64_t>&, const int32_t*, int64_t, int64_t*);

}  // namespace lg
