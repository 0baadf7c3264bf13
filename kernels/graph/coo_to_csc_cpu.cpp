#include "graph/coo_to_csc.h"

#include <algorithm>

#include "common/error.h"

namespace lg {
namespace {

template <class Id>
void check_id(const char* name, int64_t edge, Id id, int64_t num_nodes) {
  if (!in_range(id, num_nodes)) {
    fail<GraphFormatError>(name, "[", edge, "] is ", id, ", but num_nodes is ", num_nodes,
                           ": node ids must lie in [0, ", num_nodes,
                           "). Raise num_nodes or remove the edge.");
  }
}

}  // namespace

template <class Src, class Dst>
void coo_to_csc(const Src* src, const Dst* dst, int64_t num_edges, int64_t num_nodes,
                int64_t* indptr, Src* indices, int64_t* order) {
  std::fill_n(indptr, num_nodes + 1, 0);
  for (int64_t e = 0; e < num_edges; ++e) {
    check_id("src", e, src[e], num_nodes);
    check_id("dst", e, dst[e], num_nodes);
    ++indptr[dst[e]];
  }
  // indptr[v] is in turn the number of edges into v, where its next edge goes, where its edges end.
  int64_t start = 0;
  for (int64_t v = 0; v < num_nodes; ++v) {
    const int64_t degree = indptr[v];
    indptr[v] = start;
    start += degree;
  }
  for (int64_t e = 0; e < num_edges; ++e) {
    const int64_t position = indptr[dst[e]]++;
    indices[position] = src[e];
    if (order) order[position] = e;
  }
  std::copy_backward(indptr, indptr + num_nodes, indptr + num_nodes + 1);
  indptr[0] = 0;
}

template void coo_to_csc(const int32_t*, const int32_t*, int64_t, int64_t, int64_t*, int32_t*,
                         int64_t*);
template void coo_to_csc(const int32_t*, const int64_t*, int64_t, int64_t, int64_t*, int32_t*,
                         int64_t*);
template void coo_to_csc(const int64_t*, const int32_t*, int64_t, int64_t, int64_t*, int64_t*,
                         int64_t*);
template void coo_to_csc(const int64_t*, const int64_t*, int64_t, int64_t, int64_t*, int64_t*,
                         int64_t*);

}  // namespace lg
