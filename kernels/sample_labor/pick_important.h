// pick_important.h: which in-neighbours a chunk's destinations keep with the probabilities that
// importance.h finds for a whole hop at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/fetch.h"
#include "sample_labor/importance.h"
#include "sample_neighbors/sample_neighbors.h"

namespace lg {

template <class Table, class Index>
class ImportantPicker {
 public:
  ImportantPicker(Batch<Table>& batch, const LaborRequest<Index>& request)
      : batch_(batch),
        request_(request),
        importance_(batch.workspace(), request),
        inverse_(batch.workspace().template scratch<Scratch>().inverse),
        key_{stream_key(request.batch.seed, request.batch.epoch), request.batch.step, 0} {}

  void start_hop(uint32_t hop) {
    first_ = request_.expand == Expand::kNew ? end_ : 0;
    end_ = batch_.num_nodes();
    key_.hop = request_.layer_dependency ? 0 : request_.batch.hop + hop;
    fanout_ = request_.fanouts[hop];
    if (fanout_ != kAllNeighbors) {
      importance_.solve(batch_.nodes() + first_, end_ - first_, fanout_, key_);
    }
  }

  int chunk_size() const { return kMinChunk; }
  int64_t most_draws() const { return 0; }
  int64_t num_draws(int64_t) const { return 0; }

  void begin(const int64_t*, const Chunk&) const {}  // importance has read the lists

  template <class Stream>
  void pick(const Batch<Table>&, Stream& stream, const int64_t* nodes, Chunk& chunk) {
    chunk.num_edges = 0;
    for (int i = 0; i < chunk.size; ++i) {
      const int64_t start = request_.graph.indptr[nodes[i]];
      const int64_t degree = request_.graph.indptr[nodes[i] + 1] - start;
      chunk.count[i] = keep(stream, chunk.begin + i - first_, start, degree, chunk.num_edges);
      chunk.num_edges += chunk.count[i];
      batch_.check_num_edges(chunk.first_edge + chunk.num_edges);
      write_weights(chunk.first_edge + chunk.num_edges, chunk.count[i]);
    }
  }

 private:
  struct Scratch {
    std::vector<double> inverse;
  };

  // How many are kept: their positions are appended to the chunk's, their 1 / p noted.
  template <class Stream>
  int64_t keep(Stream& stream, int64_t dst, int64_t start, int64_t degree, int64_t num_edges) {
    int64_t* values = stream.reserve(num_edges + degree) + num_edges;
    double* inverse = reserve(inverse_, degree);
    if (degree <= fanout_ || fanout_ == kAllNeighbors) {
      for (int64_t j = 0; j < degree; ++j) values[j] = start + j;
      std::fill_n(inverse, degree, 1.0);
      return degree;
    }
    const int32_t* source = importance_.sources_of(dst);
    const Source* sources = importance_.sources();
    const double c = importance_.scale(dst);
    int64_t count = 0;
    for (int64_t j = 0; j < degree; ++j) {  // no branch: no one knows which are kept
      fetch_line(&sources[source[j + importance_.kAhead]]);
      values[count] = start + j;
      inverse[count] = sources[source[j]].probability(c);
      count += sources[source[j]].is_kept(c);
    }
    for (int64_t j = 0; j < count; ++j) inverse[j] = 1.0 / inverse[j];
    return count;
  }

  void write_weights(int64_t end, int64_t count) {
    float* weights = reserve(batch_.edges().weights, end) + end - count;
    double scale = 1.0;
    if (request_.estimate == Estimate::kMean) {
      double sum = 0.0;
      for (int64_t j = 0; j < count; ++j) sum += inverse_[j];
      scale = double(count) / sum;
    }
    for (int64_t j = 0; j < count; ++j) weights[j] = float(inverse_[j] * scale);
  }

  Batch<Table>& batch_;
  const LaborRequest<Index>& request_;
  Importance<Table, Index> importance_;
  std::vector<double>& inverse_;
  SourceKey key_;
  int64_t fanout_ = 0;
  int64_t first_ = 0, end_ = 0;  // the hop's destinations
};

}  // namespace lg
