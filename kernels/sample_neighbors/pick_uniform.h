// pick_uniform.h: up to `fanout` in-neighbours of each destination, uniformly.
#pragma once

#include <cstdint>

#include "sample_neighbors/node_wise.h"
#include "sample_neighbors/sample_neighbors.h"
#include "sample_neighbors/uniform_positions.h"

namespace lg {

template <class Index>
class UniformPicker {
 public:
  static constexpr bool kLooksAhead = false;

  UniformPicker(Workspace& workspace, const SampleRequest<Index>& request)
      : request_(request),
        uniform_(workspace.scratch<UniformPositions>()),
        key_(stream_key(request.batch.seed, request.batch.epoch)) {
    destinations_.replace = request.replace;
  }

  void start_hop(uint32_t hop) {
    hop_ = hop;
    destinations_.fanout = request_.fanouts[hop];
  }

  template <class Batch>
  void pick(Batch& batch, const int64_t* nodes, Chunk& chunk) {
    const Csc<Index>& graph = request_.graph;
    destinations_.size = chunk.size;
    chunk.num_edges = 0;
    for (int i = 0; i < chunk.size; ++i) {
      destinations_.draws[i] = node_draws(key_, request_.batch.step, hop_, nodes[i]);
      destinations_.start[i] = graph.indptr[nodes[i]];
      destinations_.degree[i] = graph.indptr[nodes[i] + 1] - destinations_.start[i];
      chunk.count[i] = destinations_.count(i);
      chunk.num_edges += chunk.count[i];
    }
    batch.check_num_edges(chunk.first_edge + chunk.num_edges);
    int64_t* position = reserve(chunk.values, chunk.num_edges + kVectorSlack);
    uniform_.choose(destinations_, position);
    // Each adjacency line is read once, soon: it need not stay in the larger caches.
    for (int64_t i = 0; i < chunk.num_edges; ++i) {
      __builtin_prefetch(&graph.indices[position[i]], 0, 0);
    }
  }

 private:
  static_assert(kChunk <= kMaxUniformChunk);

  const SampleRequest<Index>& request_;
  UniformPositions& uniform_;
  const StreamKey key_;
  uint32_t hop_ = 0;
  UniformChunk destinations_{};
};

}  // namespace lg
