// scan_neighbors.h: all in-neighbours of many nodes, in order, with what is looked up for each of
// them on its way into cache.
//
// Lists are cut into runs and runs collected in parts: while one part is visited, the lists and the
// table entries of the next are fetched. So memory is bounded, however long a list is.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/batch.h"
#include "common/prefetch.h"

namespace lg {

// Positions [begin, end) in `indices`: some or all in-neighbours of the node at `index`.
struct NeighborRun {
  int64_t index, begin, end;
};

template <class Index>
class NeighborScan {
 public:
  // A list of more than `longest` in-neighbours is one run, and none of them is fetched.
  NeighborScan(const Csc<Index>& graph, const int64_t* nodes, int64_t num_nodes,
               int64_t longest = INT64_MAX)
      : graph_(graph), nodes_(nodes), num_nodes_(num_nodes), longest_(longest) {
    for (int64_t i = 0; i < std::min(2 * kAhead, num_nodes); ++i) prefetch_indptr(i);
    for (int64_t i = 0; i < std::min(kAhead, num_nodes); ++i) prefetch_list(i);
  }

  // Calls prefetch(neighbor), then, a part later, visit(run). Every node has a run, maybe an empty
  // one; the runs of a node follow each other. `nodes` must stay as they are.
  template <class Prefetch, class Visit>
  void run(const Prefetch& prefetch, const Visit& visit) {
    Part parts[2];
    collect(parts[0], prefetch);
    for (int now = 0; parts[now].num_runs > 0; now = 1 - now) {
      collect(parts[1 - now], prefetch);
      for (int i = 0; i < parts[now].num_runs; ++i) visit(parts[now].runs[i]);
    }
  }

 private:
  static constexpr int64_t kAhead = 16;
  static constexpr int64_t kPartNeighbors = 512;
  static constexpr int kPartRuns = 32;

  struct Part {
    int num_runs;
    NeighborRun runs[kPartRuns];
  };

  LG_PREFETCHES void prefetch_indptr(int64_t i) const { prefetch_degree(graph_, nodes_[i]); }

  LG_PREFETCHES void prefetch_list(int64_t i) const { prefetch_neighbors(graph_, nodes_[i]); }

  template <class Prefetch>
  void collect(Part& part, const Prefetch& prefetch) {
    int64_t room = kPartNeighbors;
    part.num_runs = 0;
    while (room > 0 && part.num_runs < kPartRuns && next_ < num_nodes_) {
      if (!in_list_) {
        if (next_ + 2 * kAhead < num_nodes_) prefetch_indptr(next_ + 2 * kAhead);
        if (next_ + kAhead < num_nodes_) prefetch_list(next_ + kAhead);
        position_ = graph_.indptr[nodes_[next_]];
      }
      const int64_t list_end = graph_.indptr[nodes_[next_] + 1];
      const bool is_whole = !in_list_ && list_end - position_ > longest_;
      const int64_t end = is_whole ? list_end : std::min(list_end, position_ + room);
      for (int64_t p = position_; p < end && !is_whole; ++p) prefetch(graph_.indices[p]);
      part.runs[part.num_runs++] = {next_, position_, end};
      room -= end - position_;
      position_ = end;
      in_list_ = end < list_end;
      next_ += !in_list_;
    }
  }

  const Csc<Index>& graph_;
  const int64_t* const nodes_;
  const int64_t num_nodes_, longest_;
  int64_t next_ = 0, position_ = 0;  // where the next run begins
  bool in_list_ = false;             // whether that is amid a list
};

}  // namespace lg
