// random_walk_cuda.cu: random walks (walk_settings.h), a thread a walk.
#include "common/cuda/adjacency.h"
#include "common/cuda/batch.h"
#include "common/cuda/kernel.h"
#include "random_walk/walk.h"

namespace lg {

//   in   starts[num_starts]   within the graph
//   out  traces[num_starts * num_walks][length + 1]   nodes, -1 after the end; the walks of a start
//                                                     are side by side
template <class Index, class Offset>
__global__ void trace_walks(Adjacency<Index> graph, RunLists<Offset> lists,
                            Adjacency<AliasEntry> tables, WalkSettings walks, DrawKey key,
                            const int64_t* starts, int64_t num_starts, int64_t* traces) {
  const StreamKey stream = key.stream();
  for (int64_t i = thread_of_grid(); i < num_starts * walks.num_walks; i += threads_of_grid()) {
    const int64_t start = starts[i / walks.num_walks];
    const NodeDraws draws = node_draws(stream, key.step, key.hop, graph.name(start));
    int64_t* const trace = traces + i * (walks.length + 1);
    int64_t end = 1;
    trace[0] = start;
    walk(graph, lists, tables, walks, draws, start, i % walks.num_walks,
         [&](int64_t t, int64_t node, bool) {
           trace[t + 1] = node;
           end = t + 2;
         });
    for (; end <= walks.length; ++end) trace[end] = -1;
  }
}

}  // namespace lg

LG_INSTANTIATE(trace_walks<int32_t, uint32_t>)
LG_INSTANTIATE(trace_walks<int32_t, int64_t>)
LG_INSTANTIATE(trace_walks<int64_t, uint32_t>)
LG_INSTANTIATE(trace_walks<int64_t, int64_t>)
