// pick_uniform.h: which in-neighbours each destination of a chunk takes: up to `fanout`, uniformly.
#pragma once

#include <cstdint>
#include <vector>

#include "sample_neighbors/draw_words.h"
#include "sample_neighbors/picked_set.h"
#include "sample_neighbors/sample_neighbors.h"
#include "sample_neighbors/sample_uniform.h"

namespace lg {

template <class Index>
class UniformPicker {
 public:
  static constexpr bool kLooksAhead = false;

  UniformPicker(Workspace& workspace, const SampleRequest<Index>& request)
      : request_(request),
        scratch_(workspace.scratch<Scratch>()),
        key_(stream_key(request.batch.seed, request.batch.epoch)) {}

  void start_hop(uint32_t hop) {
    hop_ = hop;
    fanout_ = request_.fanouts[hop];
  }

  template <class Batch>
  void pick(Batch& batch, const int64_t* nodes, Chunk& chunk) {
    const Csc<Index>& graph = request_.graph;
    int64_t start[kChunk], degree[kChunk];
    NodeDraws draws[kChunk];
    int num_drawn = 0;
    chunk.num_edges = 0;
    for (int i = 0; i < chunk.size; ++i) {
      start[i] = graph.indptr[nodes[i]];
      degree[i] = graph.indptr[nodes[i] + 1] - start[i];
      draws[num_drawn] = node_draws(key_, request_.batch.step, hop_, nodes[i]);
      num_drawn += is_drawn(degree[i]);
      chunk.num_edges += chunk.count[i] = is_drawn(degree[i]) ? fanout_ : degree[i];
    }
    batch.check_num_edges(chunk.first_edge + chunk.num_edges);
    int64_t* position = reserve(chunk.values, chunk.num_edges);
    const uint32_t num_blocks = num_drawn ? uint32_t((fanout_ + 3) / 4) : 0;
    uint32_t* words = reserve(scratch_.words, int64_t(num_drawn) * num_blocks * 4);
    draw_words(draws, num_drawn, num_blocks, words);

    const NodeDraws* draw = draws;
    for (int i = 0; i < chunk.size; ++i) {
      const int64_t count = chunk.count[i];
      if (is_drawn(degree[i])) {
        choose(*draw++, words, uint32_t(degree[i]));
        words += num_blocks * 4;
        for (int64_t j = 0; j < count; ++j) position[j] = start[i] + scratch_.pick[j];
      } else {
        for (int64_t j = 0; j < count; ++j) position[j] = start[i] + j;
      }
      for (int64_t j = 0; j < count; ++j) __builtin_prefetch(&graph.indices[position[j]]);
      position += count;
    }
  }

 private:
  struct Scratch {
    std::vector<uint32_t> words, pick;
    LargePickedSet large_picked;
  };

  bool is_drawn(int64_t degree) const {
    if (fanout_ == kAllNeighbors) return false;
    return request_.replace ? degree > 0 : degree > fanout_;
  }

  void choose(const NodeDraws& draws, const uint32_t* words, uint32_t degree) {
    const uint32_t fanout = uint32_t(fanout_);
    uint32_t* pick = reserve(scratch_.pick, fanout);
    if (request_.replace) {
      sample_with_replacement(draws, words, degree, fanout, pick);
    } else if (fanout <= SmallPickedSet::kMaxSize) {
      SmallPickedSet picked;
      sample_without_replacement(draws, words, degree, fanout, picked, pick);
    } else {
      scratch_.large_picked.clear(fanout);
      sample_without_replacement(draws, words, degree, fanout, scratch_.large_picked, pick);
    }
  }

  const SampleRequest<Index>& request_;
  Scratch& scratch_;
  const StreamKey key_;
  int64_t fanout_ = 0;
  uint32_t hop_ = 0;
};

}  // namespace lg
