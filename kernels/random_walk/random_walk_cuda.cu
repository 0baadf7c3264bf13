// random_walk_cuda.cu: random walks (walk_settings.h), a thread a walk.
#include "common/cuda/adjacency.h"
#include "common/cuda/kernel.h"
#include "common/cuda/state.h"
#include "random_walk/walk.h"

namespace lg {

//   in   starts[num_starts]   within the graph
//   out  traces[num_starts * num_walks][length + 1]   nodes, -1 after the end; the walks of a start
//                                                     are side by side
template <class Index>
__global__ void trace_walks(const int64_t* indptr, const Index* indices, const int64_t* hot_begin,
                            const Index* hot_indices, const int64_t* names, const int64_t* starts,
                            int64_t num_starts, int64_t length, int64_t num_walks,
                            uint64_t end_below, uint64_t restart_below, uint64_t seed,
                            uint32_t epoch, uint32_t step, uint32_t hop, int64_t* traces) {
  const Adjacency<Index> graph{indptr, indices, hot_begin, hot_indices, names};
  const WalkSettings settings{length, num_walks, end_below, restart_below};
  const StreamKey key = stream_key(seed, epoch);
  for (int64_t i = thread_of_grid(); i < num_starts * num_walks; i += threads_of_grid()) {
    const int64_t start = starts[i / num_walks];
    const NodeDraws draws = node_draws(key, step, hop, graph.name(start));
    int64_t* const trace = traces + i * (length + 1);
    int64_t end = 1;
    trace[0] = start;
    walk(graph, settings, draws, start, i % num_walks, [&](int64_t t, int64_t node) {
      trace[t + 1] = node;
      end = t + 2;
    });
    for (; end <= length; ++end) trace[end] = -1;
  }
}

}  // namespace lg

LG_INSTANTIATE(trace_walks<int32_t>)
LG_INSTANTIATE(trace_walks<int64_t>)
