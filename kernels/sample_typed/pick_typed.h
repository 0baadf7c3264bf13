// pick_typed.h: up to fanouts[type] in-neighbours of each destination and type, uniformly.
#pragma once

#include <cstdint>
#include <vector>

#include "common/prefetch.h"
#include "sample_neighbors/uniform_positions.h"
#include "sample_typed/sample_typed.h"

namespace lg {

// Draws of different types at one hop are those of different hops: 16 hops below, types above.
inline uint32_t typed_hop(uint32_t hop, int32_t type) { return hop | uint32_t(type + 1) << 4; }

template <class Index>
class TypedPicker {
 public:
  TypedPicker(Workspace& workspace, const SampleTypedRequest<Index>& request)
      : request_(request),
        uniform_(workspace.scratch<UniformPositions>()),
        runs_(workspace.scratch<Runs>().runs),
        draws_(request.graph, request.batch) {}

  void start_hop(uint32_t hop) {
    hop_ = hop;
    fanouts_ = request_.fanouts.data() + hop * request_.num_types;
  }

  int chunk_size() const { return kMinChunk; }

  LG_PREFETCHES void begin(const int64_t* nodes, const Chunk& chunk) {
    for (int i = 0; i < chunk.size; ++i) {
      __builtin_prefetch(&request_.types.run_ptr[nodes[i]]);
      if (request_.types.order) {
        __builtin_prefetch(&request_.types.order[request_.graph.indptr[nodes[i]]]);
      }
    }
  }

  template <class Batch, class Stream>
  void pick(Batch& batch, Stream& stream, const int64_t* nodes, Chunk& chunk) {
    find_runs(nodes, chunk);
    const int64_t num_edges = chunk.first_edge + chunk.num_edges;
    batch.check_num_edges(num_edges);
    int64_t* position = stream.reserve(chunk.num_edges + kVectorSlack);
    choose(position);
    if (request_.types.order) follow_order(position);
    int32_t* types = reserve(batch.edges().types, num_edges) + chunk.first_edge;
    for (const Run& run : runs_) types = std::fill_n(types, run.count, run.type);
  }

 private:
  // The in-neighbours of one destination by edges of one type, of which some are drawn.
  struct Run {
    NodeDraws draws;
    int32_t type;
    int64_t first_edge;  // of the node
    int64_t start, degree, fanout, count;
  };
  struct Runs {
    std::vector<Run> runs;
  };

  void find_runs(const int64_t* nodes, Chunk& chunk) {
    const EdgeTypeIndex& index = request_.types;
    runs_.clear();
    chunk.num_edges = 0;
    for (int i = 0; i < chunk.size; ++i) {
      const int64_t node = nodes[i], first_edge = request_.graph.indptr[node];
      chunk.count[i] = 0;
      int64_t begin = 0;
      for (int64_t r = index.run_ptr[node]; r < index.run_ptr[node + 1]; ++r) {
        const int32_t type = index.run_type[r];
        const int64_t start = first_edge + begin, degree = index.run_end[r] - begin;
        const int64_t fanout = fanouts_[type];
        begin = index.run_end[r];
        if (fanout == 0) continue;
        const int64_t count = num_picked(degree, fanout, request_.replace);
        runs_.push_back({draws_.of(node, typed_hop(hop_, type)), type, first_edge, start, degree,
                         fanout, count});
        chunk.count[i] += count;
      }
      chunk.num_edges += chunk.count[i];
    }
  }

  // Runs of one fanout are drawn from together.
  void choose(int64_t* position) {
    for (size_t r = 0; r < runs_.size();) {
      const int64_t fanout = runs_[r].fanout;
      group_.begin(fanout, request_.replace);
      for (; r < runs_.size() && runs_[r].fanout == fanout && group_.size < kMaxChunk; ++r) {
        group_.add(runs_[r].draws, runs_[r].start, runs_[r].degree);
      }
      position = uniform_.choose(group_, position);
    }
  }

  // Positions by type -> positions in `indices`.
  void follow_order(int64_t* position) const {
    const uint32_t* order = request_.types.order;
    for (const Run& run : runs_) {
      for (int64_t j = 0; j < run.count; ++j, ++position) {
        *position = run.first_edge + order[*position];
      }
    }
  }

  const SampleTypedRequest<Index>& request_;
  UniformPositions& uniform_;
  std::vector<Run>& runs_;
  const BatchDraws<Index> draws_;
  uint32_t hop_ = 0;
  const int64_t* fanouts_ = nullptr;
  UniformChunk group_;
};

}  // namespace lg
