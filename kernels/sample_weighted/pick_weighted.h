// pick_weighted.h: up to `fanout` in-neighbours of each destination, or of each of its runs, by weight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/fetch.h"
#include "common/signals.h"
#include "sample_neighbors/draw_words.h"
#include "sample_neighbors/uniform_positions.h"
#include "sample_typed/pick_typed.h"
#include "sample_weighted/distinct.h"
#include "sample_weighted/draw_weighted.h"
#include "sample_weighted/sample_weighted.h"

namespace lg {

template <class Index, class Runs, class Ids>
class WeightedPicker {
 public:
  WeightedPicker(Workspace& workspace, const WeightedRequest<Index, Runs>& request, const Ids& ids)
      : request_(request),
        ids_(ids),
        scratch_(workspace.scratch<Scratch>()),
        key_(stream_key(request.batch.seed, request.batch.epoch,
                        request.queries.by_row ? kRowsTag : kKeysTag)) {}

  void start_hop(uint32_t hop) {
    hop_ = hop;
    fanouts_ = request_.fanouts.data() + hop * request_.num_types;
    uint32_t* ready = reserve(scratch_.ready, request_.num_types);
    most_fanout_ = most_draws_ = 0;
    for (int64_t type = 0; type < request_.num_types; ++type) {
      ready[type] = num_ready(fanouts_[type]);
      most_fanout_ = std::max(most_fanout_, fanouts_[type]);
      most_draws_ += std::max<int64_t>(fanouts_[type], 0);
    }
  }

  int chunk_size() const { return size_for_draws(most_fanout_); }

  int64_t most_draws() const { return request_.replace ? most_draws_ : 0; }
  int64_t num_draws(int64_t value) const {
    int64_t all = 0;
    request_.runs.visit(ids_.node(value), [&](int32_t type, int64_t, uint32_t degree) {
      all += request_.replace && degree > 0 ? std::max<int64_t>(fanouts_[type], 0) : 0;
    });
    return all;
  }

  // Makes the first trials, and prefetches the slots that they, or all neighbours, are in.
  void begin(const int64_t* nodes, const Chunk& chunk) {
    Ahead& ahead = scratch_.ahead[chunk.parity];
    find_lists(nodes, chunk, ahead);
    draw_ahead(ahead);
  }

  template <class Batch, class Stream>
  void pick(Batch& batch, Stream& stream, const int64_t*, Chunk& chunk) {
    const Ahead& ahead = scratch_.ahead[chunk.parity];
    batch.check_num_edges(chunk.first_edge + ahead.max_edges);
    int64_t* const begin = stream.reserve(ahead.max_edges + 1);
    int64_t* position = begin;
    int32_t* type = nullptr;
    if (kHasTypes<Runs>) {
      type = reserve(batch.edges().types, chunk.first_edge + ahead.max_edges) + chunk.first_edge;
    }
    const Trial* trials = ahead.trials.data();
    const NodeDraws* draws = ahead.draws.data();
    std::fill_n(chunk.count, chunk.size, 0);
    for (int64_t l = 0; l < ahead.num_lists; ++l) {
      const List& list = ahead.lists[size_t(l)];
      signals_.after(list.num_ready ? list.fanout : list.degree);
      const int64_t count =
          list.num_ready ? choose(list, *draws++, trials, position) : take_all(list, position);
      trials += list.num_ready;
      position += count;
      chunk.count[list.dst] += count;
      if (kHasTypes<Runs>) type = std::fill_n(type, count, list.type);
    }
    chunk.num_edges = position - begin;
  }

 private:
  static constexpr int64_t kMaxReady = 1024;
  static constexpr int64_t kMaxFetched = 256;  // beyond it the machine has seen where this goes
  static constexpr int64_t kEntriesALine = 64 / sizeof(AliasEntry);

  // In-neighbours of a destination that are drawn from as if there were no others.
  struct List {
    int64_t start;  // the query above the position
    int64_t degree, fanout;
    int32_t dst;  // of the chunk
    int32_t type;
    uint32_t num_ready;  // trials made of it ahead; 0: all neighbours are taken
  };
  // What begin() leaves for pick(), which is a chunk behind it.
  struct Ahead {
    std::vector<List> lists;
    std::vector<NodeDraws> draws;  // of each list that is drawn from
    std::vector<Trial> trials;     // num_ready for each of these
    int64_t num_lists, max_edges;
  };
  struct Scratch {
    Ahead ahead[2];
    std::vector<uint32_t> ready;  // by type: trials made ahead
    std::vector<uint32_t> words, first, pick;
    std::vector<uint64_t> shares;
    ManyDistinct many;
  };

  void find_lists(const int64_t* nodes, const Chunk& chunk, Ahead& ahead) {
    List* list = reserve(ahead.lists, chunk.size * request_.num_types);
    NodeDraws* draws = reserve(ahead.draws, chunk.size * request_.num_types);
    ahead.max_edges = 0;
    for (int i = 0; i < chunk.size; ++i) {
      const int64_t node = ids_.node(nodes[i]), query = nodes[i] - node;
      request_.runs.visit(node, [&](int32_t type, int64_t start, uint32_t degree) {
        const int64_t fanout = fanouts_[type];
        if (fanout == 0) return;
        const bool draws_some = is_drawn(degree, fanout, request_.replace);
        *draws = draws_of(nodes[i], kHasTypes<Runs> ? typed_hop(hop_, type) : hop_);
        draws += draws_some;
        *list++ = {query | start, degree, fanout, i, type, draws_some ? scratch_.ready[type] : 0};
        ahead.max_edges += draws_some ? fanout : int64_t(degree);
      });
    }
    ahead.num_lists = list - ahead.lists.data();
  }

  NodeDraws draws_of(int64_t value, uint32_t hop) const {
    const uint32_t* name = request_.queries.name;
    const uint32_t step = name ? name[ids_.query(value)] : request_.batch.step;
    const int64_t node = request_.graph.name(ids_.node(value));
    return node_draws(key_, step, request_.batch.hop + hop, node);
  }

  // An even number. Without replacement some trials bring a neighbour again, so there are some to
  // spare.
  uint32_t num_ready(int64_t fanout) const {
    const int64_t wanted = request_.replace ? fanout : fanout + fanout / 4 + 1;
    return uint32_t(std::min((wanted + 1) / 2 * 2, kMaxReady));
  }

  // The first trials of each list: those of lists of one fanout, and of one name, together.
  void draw_ahead(Ahead& ahead) {
    const List *list = ahead.lists.data(), *const end = list + ahead.num_lists;
    const NodeDraws* draws = ahead.draws.data();
    int64_t num_trials = 0;
    while (list < end) {
      const int64_t fanout = list->fanout;
      const List* next = list;
      int num_drawn = 0;
      for (; next < end && next->fanout == fanout && num_drawn < kMaxChunk; ++next) {
        if (next->num_ready == 0) continue;
        if (num_drawn > 0 && draws[num_drawn].step != draws->step) break;
        ++num_drawn;
      }
      const uint32_t ready = scratch_.ready[list->type];
      const int64_t count = int64_t(num_drawn) * ready;
      uint32_t* words = reserve(scratch_.words, 2 * count);
      if (num_drawn > 0) draw_words(draws, num_drawn, ready / 2, words);
      Trial* trial = reserve(ahead.trials, num_trials + count) + num_trials;
      num_trials += count;
      for (; list < next; ++list) {
        const AliasEntry* entries = entries_of(*list);
        if (list->num_ready == 0) {
          const int64_t num_fetched = std::min<int64_t>(list->degree, kMaxFetched);
          for (int64_t j = 0; j < num_fetched; j += kEntriesALine) {
            fetch_line(&entries[j]);
          }
          continue;
        }
        const uint32_t degree = uint32_t(list->degree);
        for (uint32_t n = 0; n < ready; ++n, ++trial, words += 2) {
          *trial = make_trial(*draws, n, degree, words[0], words[1]);
          fetch_line(&entries[trial->slot]);
        }
        ++draws;
      }
    }
  }

  const AliasEntry* entries_of(const List& list) const {
    return request_.table + ids_.position(list.start);
  }

  // Both write the positions of the edges that a list gives, and return their number.
  int64_t take_all(const List& list, int64_t* position) const {
    const AliasEntry* entries = entries_of(list);
    int64_t count = 0;
    for (int64_t j = 0; j < list.degree; ++j) {
      position[count] = list.start + j;
      count += threshold_of(entries[j]) != 0;
    }
    return count;
  }

  int64_t choose(const List& list, const NodeDraws& draws, const Trial* trials, int64_t* position) {
    const AliasEntry* entries = entries_of(list);
    const int64_t count = choose({draws, entries, uint32_t(list.degree), trials, list.num_ready},
                                 uint32_t(list.fanout));
    for (int64_t j = 0; j < count; ++j) position[j] = list.start + scratch_.pick[j];
    return count;
  }

  uint32_t choose(const WeightedNode& node, uint32_t fanout) {
    const uint32_t most = std::max(fanout, node.num_ready);
    uint32_t* pick = reserve(scratch_.pick, int64_t(most) + 1);
    if (request_.replace) return draw_with_replacement(node, fanout, pick);
    uint32_t* first = reserve(scratch_.first, node.num_ready);
    const auto get_shares = [this](uint32_t degree) { return reserve(scratch_.shares, degree); };
    const auto spent = [this](int64_t work) { signals_.after(work); };
    if (most <= FewDistinct::kMaxSize) {
      FewDistinct few;
      return draw_without_replacement(node, fanout, few, get_shares, first, pick, spent);
    }
    scratch_.many.clear(most);
    return draw_without_replacement(node, fanout, scratch_.many, get_shares, first, pick, spent);
  }

  const WeightedRequest<Index, Runs>& request_;
  const Ids& ids_;
  Scratch& scratch_;
  const StreamKey key_;
  uint32_t hop_ = 0;
  const int64_t* fanouts_ = nullptr;          // of the hop, by type
  int64_t most_fanout_ = 0, most_draws_ = 0;  // of a run, of a destination
  SignalWatch signals_;
};

}  // namespace lg
