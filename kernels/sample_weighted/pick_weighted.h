// pick_weighted.h: up to `fanout` in-neighbours of each destination, by weight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sample_neighbors/draw_words.h"
#include "sample_neighbors/uniform_positions.h"
#include "sample_weighted/distinct.h"
#include "sample_weighted/draw_weighted.h"
#include "sample_weighted/sample_weighted.h"

namespace lg {

template <class Index>
class WeightedPicker {
 public:
  WeightedPicker(Workspace& workspace, const WeightedRequest<Index>& request)
      : request_(request),
        scratch_(workspace.scratch<Scratch>()),
        draws_(request.graph, request.batch) {}

  void start_hop(uint32_t hop) {
    hop_ = hop;
    fanout_ = request_.fanouts[hop];
    // Without replacement some trials bring a neighbour again, so there are some to spare.
    const int64_t wanted = request_.replace ? fanout_ : fanout_ + fanout_ / 4 + 1;
    num_ready_ = uint32_t(std::clamp<int64_t>((wanted + 1) / 2 * 2, 0, kMaxReady));
  }

  int chunk_size() const { return kMinChunk; }

  // Makes the first trials, and prefetches the slots that they, or all neighbours, are in.
  void begin(const int64_t* nodes, const Chunk& chunk) {
    Ahead& ahead = scratch_.ahead[chunk.parity];
    NodeDraws draws[kMaxChunk];
    int num_drawn = 0;
    ahead.max_edges = 0;
    for (int i = 0; i < chunk.size; ++i) {
      Destination& dst = ahead.dst[i];
      dst.start = request_.graph.indptr[nodes[i]];
      dst.degree = request_.graph.indptr[nodes[i] + 1] - dst.start;
      dst.is_drawn = is_drawn(dst.degree, fanout_, request_.replace);
      draws[num_drawn] = dst.draws = draws_.of(nodes[i], hop_);
      num_drawn += dst.is_drawn;
      ahead.max_edges += dst.is_drawn ? fanout_ : dst.degree;
    }
    const int64_t num_trials = int64_t(num_drawn) * num_ready_;
    uint32_t* words = reserve(scratch_.words, 2 * num_trials);
    if (num_drawn > 0) draw_words(draws, num_drawn, num_ready_ / 2, words);
    Trial* trial = reserve(ahead.trials, num_trials);
    for (int i = 0; i < chunk.size; ++i) {
      const Destination& dst = ahead.dst[i];
      const AliasEntry* entries = request_.table + dst.start;
      if (!dst.is_drawn) {
        const int64_t num_fetched = std::min<int64_t>(dst.degree, kMaxFetched);
        for (int64_t j = 0; j < num_fetched; j += kEntriesALine) __builtin_prefetch(&entries[j]);
        continue;
      }
      for (uint32_t n = 0; n < num_ready_; ++n, ++trial, words += 2) {
        *trial = make_trial(dst.draws, n, uint32_t(dst.degree), words[0], words[1]);
        __builtin_prefetch(&entries[trial->slot]);
      }
    }
  }

  template <class Batch, class Stream>
  void pick(const Batch& batch, Stream& stream, const int64_t*, Chunk& chunk) {
    const Ahead& ahead = scratch_.ahead[chunk.parity];
    batch.check_num_edges(chunk.first_edge + ahead.max_edges);
    int64_t* const begin = stream.reserve(ahead.max_edges + 1);
    int64_t* position = begin;
    const Trial* trials = ahead.trials.data();
    for (int i = 0; i < chunk.size; ++i) {
      const Destination& dst = ahead.dst[i];
      const AliasEntry* entries = request_.table + dst.start;
      int64_t count = 0;
      if (dst.is_drawn) {
        count = choose({dst.draws, entries, uint32_t(dst.degree), trials, num_ready_});
        trials += num_ready_;
        for (int64_t j = 0; j < count; ++j) position[j] = dst.start + scratch_.pick[j];
      } else {
        for (int64_t j = 0; j < dst.degree; ++j) {
          position[count] = dst.start + j;
          count += threshold_of(entries[j]) != 0;
        }
      }
      chunk.count[i] = count;
      position += count;
    }
    chunk.num_edges = position - begin;
  }

 private:
  static constexpr int64_t kMaxReady = 1024;
  static constexpr int64_t kMaxFetched = 256;  // beyond it the machine has seen where this goes
  static constexpr int64_t kEntriesALine = 64 / sizeof(AliasEntry);

  struct Destination {
    int64_t start, degree;
    bool is_drawn;
    NodeDraws draws;
  };
  // What begin() leaves for pick(), which is a chunk behind it.
  struct Ahead {
    Destination dst[kMaxChunk];
    std::vector<Trial> trials;  // num_ready_ for each destination that draws
    int64_t max_edges;
  };
  struct Scratch {
    Ahead ahead[2];
    std::vector<uint32_t> words, first, pick;
    std::vector<uint64_t> shares;
    ManyDistinct many;
  };

  uint32_t choose(const WeightedNode& node) {
    const uint32_t fanout = uint32_t(fanout_), most = std::max(fanout, num_ready_);
    uint32_t* pick = reserve(scratch_.pick, int64_t(most) + 1);
    if (request_.replace) return draw_with_replacement(node, fanout, pick);
    uint32_t* first = reserve(scratch_.first, num_ready_);
    const auto get_shares = [this](uint32_t degree) { return reserve(scratch_.shares, degree); };
    if (most <= FewDistinct::kMaxSize) {
      FewDistinct few;
      return draw_without_replacement(node, fanout, few, get_shares, first, pick);
    }
    scratch_.many.clear(most);
    return draw_without_replacement(node, fanout, scratch_.many, get_shares, first, pick);
  }

  const WeightedRequest<Index>& request_;
  Scratch& scratch_;
  const BatchDraws<Index> draws_;
  int64_t fanout_ = 0;
  uint32_t hop_ = 0;
  uint32_t num_ready_ = 0;  // trials that begin() makes of each node
};

}  // namespace lg
