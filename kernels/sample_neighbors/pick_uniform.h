// pick_uniform.h: up to `fanout` in-neighbours of each destination, uniformly.
#pragma once

#include <cstdint>
#include <vector>

#include "sample_neighbors/node_wise.h"
#include "sample_neighbors/picked_set.h"
#include "sample_neighbors/sample_neighbors.h"
#include "sample_neighbors/uniform_chunk.h"

namespace lg {

template <class Index>
class UniformPicker {
 public:
  static constexpr bool kLooksAhead = false;

  UniformPicker(Workspace& workspace, const SampleRequest<Index>& request)
      : request_(request), scratch_(workspace.scratch<Scratch>()) {
    chunk_.key = stream_key(request.batch.seed, request.batch.epoch);
    chunk_.step = request.batch.step;
    chunk_.replace = request.replace;
  }

  void start_hop(uint32_t hop) {
    takes_all_ = request_.fanouts[hop] == kAllNeighbors;
    chunk_.hop = hop;
    chunk_.fanout = takes_all_ ? 0 : uint32_t(request_.fanouts[hop]);
    const int64_t num_words = kMaxUniformChunk * 4 * int64_t(chunk_.num_blocks());
    reserve(scratch_.words, num_words + kVectorSlack);
    reserve(scratch_.pick, chunk_.fanout);
  }

  template <class Batch>
  void pick(Batch& batch, const int64_t* nodes, Chunk& chunk) {
    const Csc<Index>& graph = request_.graph;
    chunk_.size = chunk.size;
    chunk.num_edges = 0;
    for (int i = 0; i < chunk.size; ++i) {
      chunk_.node[i] = nodes[i];
      chunk_.start[i] = graph.indptr[nodes[i]];
      chunk_.degree[i] = graph.indptr[nodes[i] + 1] - chunk_.start[i];
      chunk.count[i] = takes_all_ ? chunk_.degree[i] : chunk_.count(i);
      chunk.num_edges += chunk.count[i];
    }
    batch.check_num_edges(chunk.first_edge + chunk.num_edges);
    int64_t* position = reserve(chunk.values, chunk.num_edges + kVectorSlack);
    if (takes_all_) {
      all_positions(position);
    } else {
      uniform_positions(chunk_, scratch_.words.data(), scratch_.pick.data(), scratch_.large_picked,
                        position);
    }
    for (int64_t i = 0; i < chunk.num_edges; ++i)
      __builtin_prefetch(&graph.indices[position[i]], 0, 0);
  }

 private:
  struct Scratch {
    std::vector<uint32_t> words, pick;
    LargePickedSet large_picked;
  };

  void all_positions(int64_t* position) const {
    for (int i = 0; i < chunk_.size; ++i) {
      for (int64_t j = 0; j < chunk_.degree[i]; ++j) *position++ = chunk_.start[i] + j;
    }
  }

  const SampleRequest<Index>& request_;
  Scratch& scratch_;
  bool takes_all_ = false;
  UniformChunk chunk_;
};

}  // namespace lg
