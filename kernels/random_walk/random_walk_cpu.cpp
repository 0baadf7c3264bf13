#include "random_walk/random_walk.h"

#include "random_walk/walk_group.h"

namespace lg {
namespace {

template <class Index, class Lists>
void check_starts(const WalkRequest<Index, Lists>& request) {
  for (int64_t i = 0; i < request.num_starts; ++i) {
    if (!in_range(request.starts[i], request.graph.num_nodes)) {
      fail<SeedError>("starts[", i, "] is ", request.starts[i], ", but the graph has ",
                      request.graph.num_nodes, " nodes: starts must lie in [0, ",
                      request.graph.num_nodes, ").");
    }
  }
}

}  // namespace

template <class Index, class Lists>
void random_walk(const WalkRequest<Index, Lists>& request, int64_t* traces) {
  check_starts(request);
  WalkGroup group(request.graph, request.lists, request.walks, request.seed, request.epoch,
                  request.step);
  const int64_t num_walks = request.walks.num_walks, width = request.walks.length + 1;
  const int64_t end = request.num_starts * num_walks;
  for (int64_t first = 0; first < end; first += kMaxWalks) {
    const int64_t count = std::min(kMaxWalks, end - first);
    int64_t* rows = traces + first * width;
    std::fill_n(rows, count * width, -1);
    for (int64_t i = 0; i < count; ++i) rows[i * width] = request.starts[(first + i) / num_walks];
    group.run(request.starts, first, count, request.hop,
              [=](int64_t i, int64_t t, int64_t node, bool) { rows[i * width + t + 1] = node; });
  }
}

template void random_walk(const WalkRequest<int32_t>&, int64_t*);
template void random_walk(const WalkRequest<int64_t>&, int64_t*);
template void random_walk(const WalkRequest<int32_t, RunLists<uint32_t>>&, int64_t*);
template void random_walk(const WalkRequest<int32_t, RunLists<int64_t>>&, int64_t*);
template void random_walk(const WalkRequest<int64_t, RunLists<uint32_t>>&, int64_t*);
template void random_walk(const WalkRequest<int64_t, RunLists<int64_t>>&, int64_t*);

}  // namespace lg
