// pick_uniform.h: up to `fanout` in-neighbours of each destination, uniformly.
#pragma once

#include <cstdint>

#include "sample_neighbors/sample_neighbors.h"
#include "sample_neighbors/uniform_positions.h"

namespace lg {

template <class Index>
class UniformPicker {
 public:
  UniformPicker(Workspace& workspace, const SampleRequest<Index>& request)
      : request_(request),
        uniform_(workspace.scratch<UniformPositions>()),
        draws_(request.graph, request.batch) {}

  void start_hop(uint32_t hop) {
    hop_ = hop;
    least_size_ = size_for_draws(request_.fanouts[hop]);
    chunk_size_ = least_size_;
  }

  int64_t most_draws() const {
    return request_.replace ? std::max<int64_t>(request_.fanouts[hop_], 0) : 0;
  }
  int64_t num_draws(int64_t node) const {
    return request_.graph.indptr[node] < request_.graph.indptr[node + 1] ? most_draws() : 0;
  }

  int chunk_size() const { return chunk_size_; }

  void begin(const int64_t* nodes, Chunk& chunk) {
    const int64_t* indptr = request_.graph.indptr;
    for (int i = 0; i < chunk.size; ++i) {
      start_[chunk.parity][i] = indptr[nodes[i]];
      end_[chunk.parity][i] = indptr[nodes[i] + 1];
    }
  }

  template <class Batch, class Stream>
  void pick(const Batch& batch, Stream& stream, const int64_t* nodes, Chunk& chunk) {
    const int64_t *start = start_[chunk.parity], *end = end_[chunk.parity];
    group_.begin(request_.fanouts[hop_], request_.replace);
    chunk.num_edges = 0;
    for (int i = 0; i < chunk.size; ++i) {
      chunk.count[i] = group_.add(draws_.of(nodes[i], hop_), start[i], end[i] - start[i]);
      chunk.num_edges += chunk.count[i];
    }
    batch.check_num_edges(chunk.first_edge + chunk.num_edges);
    uniform_.choose(group_, stream.reserve(chunk.num_edges + kVectorSlack));
    // Vectors are for kMinChunk that draw: where few do, the next chunk has more destinations.
    const int num_idle = chunk.size - group_.num_drawn;
    chunk_size_ = num_idle >= chunk.size * 3 / 4 ? 4 * least_size_
                  : num_idle >= chunk.size / 2   ? 2 * least_size_
                                                 : least_size_;
  }

 private:
  const SampleRequest<Index>& request_;
  UniformPositions& uniform_;
  const BatchDraws<Index> draws_;
  uint32_t hop_ = 0;
  int least_size_ = kMinChunk, chunk_size_ = kMinChunk;
  int64_t start_[2][kMaxChunk], end_[2][kMaxChunk];  // of the lists of the two chunks under way
  UniformChunk group_;
};

}  // namespace lg
