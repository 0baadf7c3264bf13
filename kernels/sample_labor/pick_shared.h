// pick_shared.h: which in-neighbours a chunk's destinations keep where all are equally likely.
//
// Every in-neighbour is drawn for, so a hub costs its degree, but no more memory than others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/prefetch.h"
#include "common/signals.h"
#include "sample_labor/draw_sources.h"
#include "sample_labor/draw_threshold.h"
#include "sample_labor/sample_labor.h"
#include "sample_neighbors/sample_neighbors.h"
#include "sample_typed/pick_typed.h"

namespace lg {

template <class Index, class Runs>
class SharedPicker {
 public:
  SharedPicker(Workspace& workspace, const LaborRequest<Index, Runs>& request)
      : request_(request),
        graph_(request.graph),
        smallest_(workspace.scratch<Smallest>()),
        key_{stream_key(request.batch.seed, request.batch.epoch), request.batch.step, 0} {}

  void start_hop(uint32_t hop) {
    hop_ = request_.layer_dependency ? 0 : request_.batch.hop + hop;
    fanouts_ = request_.fanouts.data() + hop * request_.num_types;
  }

  int chunk_size() const { return kMinChunk; }
  int64_t most_draws() const { return 0; }
  int64_t num_draws(int64_t) const { return 0; }

  LG_PREFETCHES void begin(const int64_t* nodes, const Chunk& chunk) {
    for (int i = 0; i < chunk.size; ++i) {
      prefetch_neighbors(graph_, nodes[i]);
      prefetch_runs(request_.runs, nodes[i]);
    }
  }

  template <class Batch, class Stream>
  void pick(Batch& batch, Stream& stream, const int64_t* nodes, Chunk& chunk) {
    chunk.num_edges = 0;
    for (int i = 0; i < chunk.size; ++i) {
      const int64_t before = chunk.num_edges;
      request_.runs.visit(nodes[i], [&](int32_t type, int64_t start, uint32_t degree) {
        keep(batch, stream, type, start, degree, chunk);
      });
      chunk.count[i] = chunk.num_edges - before;
    }
  }

 private:
  // Those of the smallest draws, with room to order them.
  struct Smallest {
    std::vector<uint64_t> draws, ordered;
    std::vector<int64_t> positions;
  };

  // Of one list.
  template <class Batch, class Stream>
  void keep(Batch& batch, Stream& stream, int32_t type, int64_t start, int64_t degree,
            Chunk& chunk) {
    fanout_ = fanouts_[type];
    if (fanout_ == 0) return;
    key_.hop = kHasTypes<Runs> ? typed_hop(hop_, type) : hop_;
    const int64_t before = chunk.num_edges;
    const bool all = fanout_ == kAllNeighbors || degree <= fanout_;
    if (all) {
      keep_all(batch, stream, start, degree, chunk);
    } else if (request_.fixed_count) {
      keep_smallest(batch, stream, start, degree, chunk);
    } else {
      keep_below(batch, stream, start, degree, chunk);
    }
    const int64_t first = chunk.first_edge + before, count = chunk.num_edges - before;
    if (request_.estimate == Estimate::kSum) {
      const double weight = all ? 1.0 : double(degree) / double(fanout_);
      std::fill_n(reserve(batch.edges().weights, first + count) + first, count, float(weight));
    }
    if (kHasTypes<Runs>) {
      std::fill_n(reserve(batch.edges().types, first + count) + first, count, type);
    }
  }

  template <class Batch, class Stream>
  void keep_all(const Batch& batch, Stream& stream, int64_t start, int64_t degree, Chunk& chunk) {
    batch.check_num_edges(chunk.first_edge + chunk.num_edges + degree);
    int64_t* values = stream.reserve(chunk.num_edges + degree) + chunk.num_edges;
    for (int64_t j = 0; j < degree; ++j) values[j] = start + j;
    chunk.num_edges += degree;
  }

  template <class Batch, class Stream>
  void keep_below(const Batch& batch, Stream& stream, int64_t start, int64_t degree, Chunk& chunk) {
    const uint64_t threshold = draw_threshold(uint64_t(fanout_), uint64_t(degree));
    for_each_block(start, degree, [&](int64_t first, int64_t size, const uint64_t* words) {
      int64_t* values = stream.reserve(chunk.num_edges + size);
      int64_t count = chunk.num_edges;
      for (int64_t j = 0; j < size; ++j) {  // no branch: few are kept, and no one knows which
        values[count] = first + j;
        count += words[j] < threshold;
      }
      chunk.num_edges = count;
      batch.check_num_edges(chunk.first_edge + count);
    });
  }

  // A first threshold leaves somewhat more than `fanout`, rarely fewer; it decides nothing but cost.
  template <class Batch, class Stream>
  void keep_smallest(const Batch& batch, Stream& stream, int64_t start, int64_t degree,
                     Chunk& chunk) {
    batch.check_num_edges(chunk.first_edge + chunk.num_edges + fanout_);
    int64_t num_left = 0;
    for (int64_t expected = 2 * fanout_ + 8; num_left < fanout_; expected *= 2) {
      const uint64_t last = expected < degree ? draw_threshold(uint64_t(expected), uint64_t(degree))
                                              : std::numeric_limits<uint64_t>::max();
      num_left = 0;
      for_each_block(start, degree, [&](int64_t first, int64_t size, const uint64_t* words) {
        uint64_t* draws = reserve(smallest_.draws, num_left + size);
        int64_t* positions = reserve(smallest_.positions, num_left + size);
        for (int64_t j = 0; j < size; ++j) {
          draws[num_left] = words[j];
          positions[num_left] = first + j;
          num_left += words[j] <= last;
        }
      });
    }
    const uint64_t* draws = smallest_.draws.data();
    uint64_t* ordered = reserve(smallest_.ordered, num_left);
    std::copy_n(draws, num_left, ordered);
    std::nth_element(ordered, ordered + fanout_ - 1, ordered + num_left);
    const uint64_t largest = ordered[fanout_ - 1];
    int64_t num_equal = fanout_ - std::count_if(ordered, ordered + fanout_,
                                                [&](uint64_t draw) { return draw < largest; });
    int64_t* values = stream.reserve(chunk.num_edges + fanout_);
    for (int64_t j = 0; j < num_left; ++j) {
      if (draws[j] < largest || (draws[j] == largest && num_equal-- > 0)) {
        values[chunk.num_edges++] = smallest_.positions[j];
      }
    }
  }

  template <class Visit>
  void for_each_block(int64_t start, int64_t degree, const Visit& visit) {
    uint64_t words[kMaxSourceBlock];
    for (int64_t done = 0; done < degree; done += kMaxSourceBlock) {
      const int64_t size = std::min(kMaxSourceBlock, degree - done);
      draw_sources_of(graph_, key_, graph_.indices + start + done, size, words);
      visit(start + done, size, words);
      signals_.after(size);
    }
  }

  const LaborRequest<Index, Runs>& request_;
  const Csc<Index>& graph_;
  Smallest& smallest_;
  uint32_t hop_ = 0;
  const int64_t* fanouts_ = nullptr;  // of the hop, by type
  SourceKey key_;                     // of the list
  int64_t fanout_ = 0;                // likewise
  SignalWatch signals_;
};

}  // namespace lg
