#include "partition/deal_seeds.h"

#include <algorithm>
#include <numeric>

#include "common/error.h"
#include "common/fetch.h"
#include "common/huge_array.h"
#include "common/prefetch.h"
#include "common/signals.h"

namespace lg {
namespace {

// Nodes ahead of the one at work: first where a list begins is fetched, then the list.
constexpr int64_t kIndptrAhead = 16, kListAhead = 8;

__extension__ using uint128_t = unsigned __int128;

// A score without its factor 1 / K, which all parts have.
struct Score {
  uint128_t numerator;
  uint64_t num_nodes;  // the denominator, where it is not 0

  bool beats(const Score& other) const {
    const uint128_t ours = numerator * positive(other.num_nodes);
    const uint128_t theirs = other.numerator * positive(num_nodes);
    return ours != theirs ? ours > theirs : num_nodes < other.num_nodes;
  }
  static uint64_t positive(uint64_t count) { return count ? count : 1; }
};

template <class Index>
class Dealer {
 public:
  Dealer(const Csc<Index>& graph, const int64_t* quotas, const DealSettings& settings,
         DealState& state)
      : graph_(graph),
        quotas_(quotas),
        settings_(settings),
        state_(state),
        num_words_((graph.num_nodes + 63) / 64),
        total_(std::accumulate(quotas, quotas + state.num_parts, int64_t(0))),
        reached_(size_t(graph.num_nodes) + 1) {}

  int64_t run(const int64_t* seeds, int64_t count) {
    int64_t done = 0;
    SignalWatch signals;
    for (; done < count && num_edges_ < settings_.max_edges; ++done) {
      const int64_t seed = seeds[done];
      if (!in_range(seed, graph_.num_nodes)) {
        fail<SeedError>("seeds[", done, "] is ", seed, ", but the graph has ", graph_.num_nodes,
                        " nodes.");
      }
      if (state_.part[seed] >= 0) {
        fail<SeedError>("seeds[", done, "] is ", seed, ", which is in part ",
                        int(state_.part[seed]), " already: give each seed once.");
      }
      const int64_t before = num_edges_;
      deal(Index(seed), done);
      signals.after(1 + num_edges_ - before);
    }
    return done;
  }

 private:
  void deal(Index seed, int64_t number) {
    search(seed);
    count_overlap();
    for (int64_t i = 0; i < num_reached_; ++i) state_.seen[uint64_t(reached_[i]) / 64] = 0;
    const int64_t best = best_part();
    if (best < 0) {
      fail<SeedError>("seeds[", number, "] is ", seed, ", but every part has its quota of seeds.");
    }
    state_.part[seed] = int8_t(best);
    ++state_.num_seeds[best];
    hold(best);
  }

  // reached_: the seed, then IN(seed) by distance.
  void search(Index seed) {
    reached_[0] = seed;
    state_.seen[uint64_t(seed) / 64] |= uint64_t(1) << (uint64_t(seed) % 64);
    num_reached_ = 1;
    int64_t begin = 0;
    for (int64_t hop = 0; hop < settings_.hops && begin < num_reached_; ++hop) {
      const int64_t end = num_reached_;
      for (int64_t i = begin; i < end; ++i) {
        if (i + kIndptrAhead < end) fetch_line(&graph_.indptr[reached_[i + kIndptrAhead]]);
        if (i + kListAhead < end) prefetch_neighbors(graph_, reached_[i + kListAhead]);
        reach_all(reached_[i]);
      }
      begin = end;
    }
  }

  void reach_all(Index node) {
    const int64_t end = graph_.indptr[node + 1];
    uint64_t* const seen = state_.seen;
    Index* const reached = reached_.data();
    int64_t count = num_reached_;
    for (int64_t e = graph_.indptr[node]; e < end; ++e) {
      const Index neighbor = graph_.indices[e];
      uint64_t& word = seen[uint64_t(neighbor) / 64];
      const uint64_t bit = uint64_t(neighbor) % 64;
      // Whether a node is new cannot be predicted: it is written in any case, and counted if it is.
      reached[count] = neighbor;
      count += int64_t(~word >> bit & 1);
      word |= uint64_t(1) << bit;
    }
    num_edges_ += end - graph_.indptr[node];
    num_reached_ = count;
  }

  void count_overlap() {
    std::fill_n(overlap_, 256, 0);
    if (settings_.overlap == Overlap::kNodes) {
      // Part by part, so that one part's bits stay near the core.
      for (int64_t p = 0; p < state_.num_parts; ++p) overlap_[p] = count_held(p);
      return;
    }
    // Nodes without a part, the most frequent, count at the place of -1.
    for (int64_t i = 0; i < num_reached_; ++i) ++overlap_[uint8_t(state_.part[reached_[i]])];
  }

  int64_t count_held(int64_t part) const {
    const uint64_t* const held = state_.held + part * num_words_;
    int64_t count = 0;
    for (int64_t i = 0; i < num_reached_; ++i) {
      const uint64_t node = uint64_t(reached_[i]);
      count += int64_t(held[node / 64] >> (node % 64) & 1);
    }
    return count;
  }

  // -1 where no part has room.
  int64_t best_part() const {
    int64_t best = -1;
    Score highest{};
    for (int64_t p = 0; p < state_.num_parts; ++p) {
      if (state_.num_seeds[p] >= quotas_[p]) continue;
      const int64_t room = total_ - state_.num_parts * state_.num_seeds[p];
      const uint64_t likeness = uint64_t(settings_.overlap_weight) * uint64_t(overlap_[p]) +
                                uint64_t(settings_.smoothing);
      const Score score{room > 0 ? uint128_t(likeness) * uint64_t(room) : 0,
                        uint64_t(state_.num_nodes[p])};
      if (best < 0 || score.beats(highest)) {
        best = p;
        highest = score;
      }
    }
    return best;
  }

  void hold(int64_t part) {
    uint64_t* const held = state_.held + part * num_words_;
    int64_t num_new = 0;
    for (int64_t i = 0; i < num_reached_; ++i) {
      uint64_t& word = held[uint64_t(reached_[i]) / 64];
      const uint64_t bit = uint64_t(reached_[i]) % 64;
      num_new += int64_t(~word >> bit & 1);
      word |= uint64_t(1) << bit;
    }
    state_.num_nodes[part] += num_new;
  }

  const Csc<Index>& graph_;
  const int64_t* const quotas_;
  const DealSettings& settings_;
  DealState& state_;
  const int64_t num_words_, total_;
  HugeArray<Index> reached_;
  int64_t num_reached_ = 0, num_edges_ = 0;
  int64_t overlap_[256];  // by the part as an unsigned byte
};

}  // namespace

template <class Index>
int64_t deal_seeds(const Csc<Index>& graph, const int64_t* seeds, int64_t count,
                   const int64_t* quotas, const DealSettings& settings, DealState& state) {
  return Dealer<Index>(graph, quotas, settings, state).run(seeds, count);
}

template int64_t deal_seeds(const Csc<int32_t>&, const int64_t*, int64_t, const int64_t*,
                            const DealSettings&, DealState&);
template int64_t deal_seeds(const Csc<int64_t>&, const int64_t*, int64_t, const int64_t*,
                            const DealSettings&, DealState&);

}  // namespace lg
