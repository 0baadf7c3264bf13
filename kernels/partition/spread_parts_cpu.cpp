#include "partition/spread_parts.h"

#include <algorithm>

#include "common/signals.h"

namespace lg {

template <class Index>
int64_t spread_parts(const Csc<Index>& graph, const uint64_t* fresh, uint64_t* held,
                     uint64_t* next) {
  std::copy(held, held + graph.num_nodes, next);
  SignalWatch signals;
  for (int64_t v = 0; v < graph.num_nodes; ++v) {
    const uint64_t parts = fresh[v];
    if (parts == 0) continue;
    signals.after(1 + graph.indptr[v + 1] - graph.indptr[v]);
    for (int64_t e = graph.indptr[v]; e < graph.indptr[v + 1]; ++e) {
      uint64_t& mask = next[graph.indices[e]];
      // Most parts are there already: a line that is not written needs no way back to memory.
      if ((mask & parts) != parts) mask |= parts;
    }
  }
  int64_t num_reached = 0;
  for (int64_t v = 0; v < graph.num_nodes; ++v) {
    const uint64_t all = next[v];
    next[v] = all & ~held[v];
    held[v] = all;
    num_reached += next[v] != 0;
  }
  return num_reached;
}

template int64_t spread_parts(const Csc<int32_t>&, const uint64_t*, uint64_t*, uint64_t*);
template int64_t spread_parts(const Csc<int64_t>&, const uint64_t*, uint64_t*, uint64_t*);

}  // namespace lg
