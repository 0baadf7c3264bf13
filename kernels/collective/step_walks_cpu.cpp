#include "collective/step_walks.h"

#include <algorithm>

#include "common/fetch.h"
#include "common/philox_many.h"
#include "common/prefetch.h"
#include "common/signals.h"

namespace lg {
namespace {

constexpr int64_t kGroup = 256;  // walks that wait for memory together

template <class Index>
void check(const StepRequest<Index>& request) {
  for (int64_t i = 0; i < request.count; ++i) {
    if (!in_range(request.places[i], request.graph.num_nodes)) {
      fail<SeedError>("places[", i, "] is ", request.places[i], ", but the graph has ",
                      request.graph.num_nodes, " nodes: places must lie in [0, ",
                      request.graph.num_nodes, ").");
    }
    if (!in_range(request.numbers[i], request.walks.num_walks)) {
      fail<SamplerConfigError>("numbers[", i, "] is ", request.numbers[i], ", but there are ",
                               request.walks.num_walks, " walks a start.");
    }
  }
}

// Steps of walks `first` to `first + count - 1`.
template <class Index>
void step_group(const StepRequest<Index>& request, const StreamKey& key, int64_t first,
                int64_t count, int64_t* nodes, uint8_t* fates) {
  const Csc<Index>& graph = request.graph;
  const WalkSettings& walks = request.walks;
  const bool odd = walks.is_second(request.t);
  NodeDraws draws[kGroup];
  Words4 words[kGroup];
  uint32_t block[kGroup];
  for (int64_t i = 0; i < count; ++i) {
    prefetch_degree(graph, request.places[first + i]);
    draws[i] = node_draws(key, request.step, request.hop, request.starts[first + i]);
    block[i] =
        uint32_t(request.numbers[first + i] * walks.blocks_per_walk() + walks.block_of(request.t));
    words[i] = draw_counter(draws[i], block[i], 0);
  }
  philox_many(words, int(count), key.draw0, key.draw1);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = graph.indptr[request.places[first + i]];
    const uint32_t degree = uint32_t(graph.indptr[request.places[first + i] + 1] - begin);
    const uint32_t j = 4 * block[i] + (odd ? 2 : 0);
    nodes[i] =
        degree == 0 ? -1 : begin + draw_below(draws[i], j, degree, odd ? words[i].z : words[i].x);
    if (degree == 0) continue;
    if (walks.table) {
      fetch_line(&walks.table[nodes[i]]);
    } else {
      fetch_line(&graph.indices[nodes[i]]);
    }
  }
  for (int64_t i = 0; walks.table && i < count; ++i) {  // from slots to what they give
    if (nodes[i] < 0) continue;
    const int64_t begin = graph.indptr[request.places[first + i]];
    const uint32_t neighbor =
        resolve(walks.table[nodes[i]], uint32_t(nodes[i] - begin), words[i].z);
    nodes[i] = neighbor == kNobody ? -1 : begin + neighbor;
    if (nodes[i] >= 0) fetch_line(&graph.indices[nodes[i]]);
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t fate = odd ? words[i].w : words[i].y;
    fates[i] = nodes[i] < 0                 ? kStuck
               : fate < walks.end_below     ? kEnds
               : fate < walks.restart_below ? kRestarts
                                            : kGoesOn;
    if (nodes[i] >= 0) nodes[i] = graph.indices[nodes[i]];
  }
}

}  // namespace

template <class Index>
void step_walks(const StepRequest<Index>& request, int64_t* nodes, uint8_t* fates) {
  check(request);
  const StreamKey key = stream_key(request.seed, request.epoch);
  SignalWatch signals;
  for (int64_t first = 0; first < request.count; first += kGroup) {
    signals.after(kGroup);
    const int64_t count = std::min(kGroup, request.count - first);
    step_group(request, key, first, count, nodes + first, fates + first);
  }
}

template void step_walks(const StepRequest<int32_t>&, int64_t*, uint8_t*);
template void step_walks(const StepRequest<int64_t>&, int64_t*, uint8_t*);

}  // namespace lg
