// walk_group.h: up to kMaxWalks walks at once, one step of all of them after the other.
//
// A step reads a degree, by weight a slot, and then a neighbour at random places. Each was prefetched
// one pass over the group earlier, so that the walks wait for memory together and not each for itself.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/fetch.h"
#include "common/philox_many.h"
#include "common/prefetch.h"
#include "common/signals.h"
#include "random_walk/random_walk.h"

namespace lg {

constexpr int64_t kMaxWalks = 256;

template <class Index, class Lists>
class WalkGroup {
 public:
  WalkGroup(const Csc<Index>& graph, const Lists& lists, const WalkSettings& settings,
            uint64_t seed, uint32_t epoch, uint32_t step)
      : graph_(graph),
        lists_(lists),
        settings_(settings),
        key_(stream_key(seed, epoch)),
        step_(step) {}

  // Walks `first` to `first + count - 1`, counted over all starts with num_walks each; count is at
  // most kMaxWalks. Calls visit(i, t, node, ends_round) for each node that step t of walk
  // `first + i` reaches, in the order of steps.
  template <class Visit>
  void run(const int64_t* starts, int64_t first, int64_t count, uint32_t hop, const Visit& visit) {
    begin(starts, first, count, hop);
    for (int64_t t = 0; t < settings_.length && num_walks_ > 0; ++t) {
      if (!settings_.is_second(t)) draw(t);
      choose(t);
      if (settings_.table) resolve();
      advance(t, visit);
      signals_.after(num_walks_);
    }
  }

 private:
  // A walk that has not ended. Those that have leave the group, and the others move up.
  struct Walk {
    int64_t place;  // the node that the next step leaves from; between choose() and advance() the
                    // position in `indices` of the neighbour it goes to, or of the slot that says
    int32_t lane;   // its number in the group
    int32_t block;  // where words_ has its draws
  };

  void begin(const int64_t* starts, int64_t first, int64_t count, uint32_t hop) {
    const int64_t num_walks = settings_.num_walks, blocks_per_walk = settings_.blocks_per_walk();
    const auto now = lists_.step(0);
    int64_t start = first / num_walks, number = first % num_walks;
    for (int lane = 0; lane < count; ++lane) {
      const int64_t node = starts[start];
      prefetch_list(now(node));
      start_[lane] = node;
      draws_[lane] = node_draws(key_, step_, hop, graph_.name(node));
      first_block_[lane] = uint32_t(number * blocks_per_walk);
      walks_[lane] = {node, lane, 0};
      if (++number == num_walks) {
        ++start;
        number = 0;
      }
    }
    num_walks_ = int(count);
  }

  // The words of step t, and of t + 1 if that shares them.
  void draw(int64_t t) {
    for (int k = 0; k < num_walks_; ++k) {
      Walk& walk = walks_[k];
      walk.block = k;
      words_[k] = draw_counter(draws_[walk.lane], block(walk, t), 0);
    }
    philox_many(words_, num_walks_, key_.draw0, key_.draw1);
  }

  // From nodes to the positions of their successors, or of the slots that know them.
  void choose(int64_t t) {
    const bool is_second = settings_.is_second(t);
    const AliasEntry* const table = settings_.table;
    const auto now = lists_.step(t);
    int num_going = 0;
    for (int k = 0; k < num_walks_; ++k) {
      Walk walk = walks_[k];
      const int64_t list = now(walk.place);
      const int64_t begin = int64_t(lists_.ptr[list]);
      const uint32_t degree = uint32_t(lists_.ptr[list + 1] - lists_.ptr[list]);
      const Words4& words = words_[walk.block];
      walk.place = begin + draw_below(draws_[walk.lane], 4 * block(walk, t) + 2 * is_second, degree,
                                      is_second ? words.z : words.x);
      if (table) {
        begin_[walk.lane] = begin;
        fetch_line(&table[walk.place]);
      } else {
        fetch_line(&graph_.indices[walk.place]);
      }
      walks_[num_going] = walk;
      num_going += degree != 0;
    }
    num_walks_ = num_going;
  }

  // From the positions of slots to those of the neighbours that they give.
  void resolve() {
    int num_going = 0;
    for (int k = 0; k < num_walks_; ++k) {
      Walk walk = walks_[k];
      const int64_t begin = begin_[walk.lane];
      const uint32_t slot = uint32_t(walk.place - begin);
      const uint32_t neighbor =
          lg::resolve(settings_.table[walk.place], slot, words_[walk.block].z);
      walk.place = begin + neighbor;
      fetch_line(&graph_.indices[neighbor == kNobody ? begin : walk.place]);
      walks_[num_going] = walk;
      num_going += neighbor != kNobody;
    }
    num_walks_ = num_going;
  }

  // From positions to nodes, and to where the next step leaves from.
  template <class Visit>
  void advance(int64_t t, const Visit& visit) {
    const bool is_second = settings_.is_second(t), ends_round = lists_.ends_round(t);
    const uint64_t end_below = ends_round ? settings_.end_below : 0;
    const uint64_t restart_below = ends_round ? settings_.restart_below : 0;
    const auto next = lists_.step(t + 1);
    int num_going = 0;
    for (int k = 0; k < num_walks_; ++k) {
      Walk walk = walks_[k];
      const int64_t node = graph_.indices[walk.place];
      visit(walk.lane, t, node, ends_round);
      const Words4& words = words_[walk.block];
      const uint32_t fate = is_second ? words.w : words.y;
      const bool ends = fate < end_below, restarts = fate < restart_below;
      walk.place = restarts ? start_[walk.lane] : node;
      // No memory is to be fetched for a walk that ends, and no branch to be mispredicted.
      prefetch_list(ends ? 0 : next(walk.place));
      walks_[num_going] = walk;
      num_going += !ends;
    }
    num_walks_ = num_going;
  }

  // Where a list begins and ends: one time in eight, these are on two lines.
  LG_PREFETCHES void prefetch_list(int64_t list) const {
    fetch_line(&lists_.ptr[list]);
    fetch_line(&lists_.ptr[list + 1]);
  }

  uint32_t block(const Walk& walk, int64_t t) const {
    return first_block_[walk.lane] + uint32_t(settings_.block_of(t));
  }

  const Csc<Index>& graph_;
  const Lists lists_;
  const WalkSettings& settings_;
  const StreamKey key_;
  const uint32_t step_;
  int num_walks_ = 0;  // that have not ended

  Walk walks_[kMaxWalks];     // the first num_walks_
  Words4 words_[kMaxWalks];   // by Walk::block
  int64_t start_[kMaxWalks];  // by lane, as the two below
  NodeDraws draws_[kMaxWalks];
  uint32_t first_block_[kMaxWalks];
  int64_t begin_[kMaxWalks];  // of the list that a slot is of
  SignalWatch signals_;
};

}  // namespace lg
