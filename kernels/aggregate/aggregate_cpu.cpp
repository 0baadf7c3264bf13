#include "aggregate/aggregate.h"

#include "common/error.h"

namespace lg {

void check_block(const AggregateRequest& request) {
  int64_t last = 0;
  bool ascends = request.indptr[0] == 0;
  for (int64_t d = 0; d <= request.num_dst; ++d) {
    ascends &= request.indptr[d] >= last;
    last = request.indptr[d];
  }
  if (!ascends || last != request.num_edges) {
    fail<GraphFormatError>("indptr must ascend from 0 to the number of edges, ", request.num_edges,
                           ", but it does not, or ends at ", last, ".");
  }
  for (int64_t e = 0; e < request.num_edges; ++e) {
    if (!in_range(request.indices[e], request.num_src)) {
      fail<GraphFormatError>("indices[", e, "] is ", request.indices[e], ", but there are ",
                             request.num_src, " rows of sources.");
    }
  }
}

}  // namespace lg
