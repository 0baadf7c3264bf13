// draw_weighted.h: choice by weight among the in-neighbours of one destination node.
//
// Trial n is a slot of the node's alias table, draw 2 n, and a coin, word 2 n + 1: a neighbour in
// proportion to its shares, independent of all other trials.
//
// With replacement, the first `fanout` trials are the choice. Without, it is successive sampling
// (draw by weight, remove, draw again): the first `fanout` distinct neighbours that an endless
// sequence of trials brings. Where few neighbours have most of the weight that takes long, so after
// max_trials() the others are drawn from the shares of those not yet picked.
// That is exact, whatever the number of trials. Given the trials so far, the next new neighbour that
// further ones would bring is each of those not yet picked with probability in proportion to its
// shares; and so it is drawn.
#pragma once

#include "common/alias.h"

namespace lg {

constexpr int64_t kMaxWeightedFanout = int64_t(1) << 24;  // trials and draws: below kMaxDraws64
constexpr uint32_t kMaxTrials = uint32_t(1) << 24;

// An even number, and about as many as take the time of finding all shares.
LG_HD uint32_t max_trials(uint32_t degree, uint32_t fanout) {
  const uint64_t trials = 2 * (uint64_t(fanout) + degree / 16);
  return trials < kMaxTrials ? uint32_t(trials) : kMaxTrials;
}

struct Trial {
  uint32_t slot, coin;
};

// `slot_word` is word 2 n, first attempt.
LG_HD Trial make_trial(const NodeDraws& draws, uint32_t n, uint32_t degree, uint32_t slot_word,
                       uint32_t coin) {
  return {draw_below(draws, 2 * n, degree, slot_word), coin};
}

// What one node draws from, and the trials that were made ahead: an even number, at least two.
struct WeightedNode {
  NodeDraws draws;
  const AliasEntry* entries;  // [degree]
  uint32_t degree;            // 1 <= degree < 2^32
  const Trial* ready;
  uint32_t num_ready;

  LG_HD Trial trial(uint32_t n) const {
    const Words4 words = draw_block(draws, n >> 1, 0);
    return make_trial(draws, n, degree, n & 1 ? words.z : words.x, n & 1 ? words.w : words.y);
  }

  // A position in [0, degree), or kNobody if the weights are all zero.
  LG_HD uint32_t neighbor(const Trial& trial) const {
    return resolve(entries[trial.slot], trial.slot, trial.coin);
  }

  // Calls take(position) for trial `begin`, an even number, and so on, while it returns true.
  template <class Take>
  LG_HD void try_from(uint32_t begin, uint32_t end, const Take& take) const {
    for (uint32_t n = begin; n < end; n += 2) {
      const Words4 words = draw_block(draws, n >> 1, 0);
      if (!take(neighbor(make_trial(draws, n, degree, words.x, words.y)))) return;
      if (n + 1 == end) return;
      if (!take(neighbor(make_trial(draws, n + 1, degree, words.z, words.w)))) return;
    }
  }
};

//   out  pick[fanout]   independent positions in [0, degree)
//   ret                 fanout, or 0 if the weights are all zero
LG_HD uint32_t draw_with_replacement(const WeightedNode& node, uint32_t fanout, uint32_t* pick) {
  uint32_t count = fanout < node.num_ready ? fanout : node.num_ready;
  for (uint32_t n = 0; n < count; ++n) pick[n] = node.neighbor(node.ready[n]);
  if (pick[0] == kNobody) return 0;
  node.try_from(count, fanout, [&](uint32_t position) {
    pick[count++] = position;
    return true;
  });
  return fanout;
}

// The second part of draw_without_replacement(): picks from pick[count] on, by what is left.
//   tmp  shares[degree]
//   ret  fanout, or the number of neighbours whose weight is not zero, if that is less
// Calls spent(work) now and then, which may throw.
template <class Spent>
LG_HD uint32_t draw_from_shares(const WeightedNode& node, uint32_t fanout, uint64_t* shares,
                                uint32_t* pick, uint32_t count, const Spent& spent) {
  for (uint32_t i = 0; i < node.degree; ++i) shares[i] = 0;
  for (uint32_t i = 0; i < node.degree; ++i) {
    shares[i] += threshold_of(node.entries[i]);
    shares[alias_of(node.entries[i])] += kSlotShares - threshold_of(node.entries[i]);
  }
  uint64_t left = node.degree * kSlotShares;
  const auto remove = [&](uint32_t position) {
    left -= shares[position];
    shares[position] = 0;
  };
  for (uint32_t k = 0; k < count; ++k) remove(pick[k]);
  const uint32_t first_draw = max_trials(node.degree, fanout);  // those before made trials
  for (; count < fanout && left > 0; ++count) {
    uint64_t at = draw_below64(node.draws, first_draw + count, left);
    uint32_t position = 0;
    while (at >= shares[position]) at -= shares[position++];
    spent(position);
    pick[count] = position;
    remove(position);
  }
  return count;
}

//   in   fanout           < degree
//   in   node.num_ready   at most max_trials()
//   in   distinct         see distinct.h
//   in   get_shares(n)    memory for n shares, asked for where trials do not suffice
//   tmp  first[num_ready]
//   out  pick             distinct positions in [0, degree), in the order of the draws; room for
//                         fanout and for num_ready + 1 of them
//   ret                   fanout, or the number of neighbours whose weight is not zero
template <class Distinct, class GetShares, class Spent>
LG_HD uint32_t draw_without_replacement(const WeightedNode& node, uint32_t fanout,
                                        Distinct& distinct, const GetShares& get_shares,
                                        uint32_t* first, uint32_t* pick, const Spent& spent) {
  for (uint32_t n = 0; n < node.num_ready; ++n) first[n] = node.neighbor(node.ready[n]);
  if (first[0] == kNobody) return 0;
  uint32_t count = distinct.keep(first, node.num_ready, pick);
  if (count < fanout) {
    node.try_from(node.num_ready, max_trials(node.degree, fanout), [&](uint32_t position) {
      pick[count] = position;
      count += distinct.is_new(position, pick, count);
      return count < fanout;
    });
  }
  if (count >= fanout) return fanout;
  return draw_from_shares(node, fanout, get_shares(node.degree), pick, count, spent);
}

}  // namespace lg
