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
        draws_(request.graph, request.batch) {
    for (UniformChunk& group : groups_) group.replace = request.replace;
  }

  int64_t start_hop(uint32_t hop) {
    hop_ = hop;
    const int64_t fanout = request_.fanouts[hop];
    for (UniformChunk& group : groups_) group.fanout = fanout;
    return fanout;
  }

  template <class Batch>
  void pick(Batch& batch, const int64_t* nodes, Chunk& chunk) {
    const Csc<Index>& graph = request_.graph;
    chunk.num_edges = 0;
    for (int i = 0; i < chunk.size; ++i) {
      UniformChunk& group = groups_[i / kMaxUniformChunk];
      const int k = i % kMaxUniformChunk;
      group.size = k + 1;
      group.draws[k] = draws_.of(nodes[i], hop_);
      group.start[k] = graph.indptr[nodes[i]];
      group.degree[k] = graph.indptr[nodes[i] + 1] - group.start[k];
      chunk.count[i] = group.count(k);
      chunk.num_edges += chunk.count[i];
    }
    batch.check_num_edges(chunk.first_edge + chunk.num_edges);
    int64_t* const position = reserve(chunk.values, chunk.num_edges + kVectorSlack);
    int64_t* end = position;
    for (int i = 0; i < chunk.size; i += kMaxUniformChunk) {
      end = uniform_.choose(groups_[i / kMaxUniformChunk], end);
    }
    // Each adjacency line is read once, soon: it need not stay in the larger caches.
    for (int64_t i = 0; i < chunk.num_edges; ++i) {
      __builtin_prefetch(&graph.indices[position[i]], 0, 0);
    }
  }

 private:
  const SampleRequest<Index>& request_;
  UniformPositions& uniform_;
  const BatchDraws<Index> draws_;
  uint32_t hop_ = 0;
  UniformChunk groups_[kMaxChunk / kMaxUniformChunk] = {};
};

}  // namespace lg
