#include "partition/vote_nodes.h"

#include "common/signals.h"

namespace lg {
namespace {

template <class Index>
class Poll {
 public:
  Poll(const Csc<Index>& graph, Voters& voters)
      : graph_(graph), voters_(voters), all_(~uint64_t(0) >> (64 - voters.num_parts)) {}

  void decide(int64_t node) {
    const int32_t before = voters_.part[node];
    voters_.part[node] = -1;  // a loop is no vote
    if (before >= 0) --voters_.num_own[before];
    const uint64_t named = count(node);
    const uint64_t holders = voters_.held == nullptr ? 0 : voters_.held[node] & all_;
    const int32_t best = elected(named & (holders ? holders : all_));
    const int32_t after = best >= 0 ? best : before;
    voters_.part[node] = after;
    if (after >= 0) ++voters_.num_own[after];
    for (uint64_t left = named; left != 0; left &= left - 1) votes_[__builtin_ctzll(left)] = 0;
  }

 private:
  // Which parts have a vote.
  uint64_t count(int64_t node) {
    uint64_t named = 0;
    for (int64_t e = graph_.indptr[node]; e < graph_.indptr[node + 1]; ++e) {
      const int32_t part = voters_.part[graph_.indices[e]];
      if (part < 0) continue;
      ++votes_[part];
      named |= uint64_t(1) << part;
    }
    return named;
  }

  // -1 where no part has room.
  int32_t elected(uint64_t among) const {
    int32_t best = -1;
    for (; among != 0; among &= among - 1) {
      const int32_t part = __builtin_ctzll(among);
      if (voters_.num_own[part] < voters_.capacity && (best < 0 || beats(part, best))) best = part;
    }
    return best;
  }

  bool beats(int32_t part, int32_t other) const {
    return votes_[part] != votes_[other] ? votes_[part] > votes_[other]
                                         : voters_.num_own[part] < voters_.num_own[other];
  }

  const Csc<Index>& graph_;
  Voters& voters_;
  const uint64_t all_;
  int64_t votes_[64] = {};
};

}  // namespace

template <class Index>
void vote_nodes(const Csc<Index>& graph, int64_t begin, int64_t end, Voters& voters) {
  Poll<Index> poll(graph, voters);
  SignalWatch signals;
  for (int64_t node = begin; node < end; ++node) {
    if (!voters.open[node]) continue;
    poll.decide(node);
    signals.after(1 + graph.indptr[node + 1] - graph.indptr[node]);
  }
}

template void vote_nodes(const Csc<int32_t>&, int64_t, int64_t, Voters&);
template void vote_nodes(const Csc<int64_t>&, int64_t, int64_t, Voters&);

}  // namespace lg
