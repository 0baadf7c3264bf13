// visit_counts.h: which nodes were visited most often.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/workspace.h"
#include "sample_walks/visit_key.h"

namespace lg {

class VisitCounts {
 public:
  void reserve_visits(int64_t max_visits) {
    size_t num_slots = 16;
    while (num_slots < 2 * size_t(max_visits)) num_slots *= 2;
    if (slots_.size() < num_slots) slots_.resize(num_slots);
    reserve(used_, max_visits);
    reserve(counted_, max_visits);
    reserve(ranked_, max_visits);
  }

  // Finds the `num_top` nodes that occur most often in `visits`, or all if there are fewer; returns
  // their number. names: by node, or null.
  int64_t find_top(const int64_t* visits, int64_t num_visits, int64_t num_top,
                   const int64_t* names) {
    const int64_t num_nodes = count(visits, num_visits);
    num_top = std::min(num_top, num_nodes);
    if (num_nodes <= kFew) {
      rank_few(num_nodes, names);
    } else {
      const auto begin = counted_.begin(), end = begin + num_nodes;
      std::partial_sort_copy(
          begin, end, ranked_.begin(), ranked_.begin() + num_top,
          [=](uint64_t a, uint64_t b) { return named(a, names) > named(b, names); });
    }
    return num_top;
  }

  // The first `num_top` of the nodes that find_top() found, and what each counts: its visits, or with
  // `normalize` their share in those of all.
  void write_top(int64_t num_top, bool normalize, int64_t* nodes, float* weights) const {
    int32_t total = 0;
    for (int64_t i = 0; i < num_top; ++i) total += count(i);
    const float unit = normalize ? float(total) : 1.0f;
    for (int64_t i = 0; i < num_top; ++i) {
      nodes[i] = node(i);
      // Both are below 2^24, hence exact: the quotient is rounded once, and equal on any machine.
      weights[i] = float(count(i)) / unit;
    }
  }

 private:
  // The i-th of the nodes that find_top() found, and its visits.
  int64_t node(int64_t i) const { return int64_t(kNode - (ranked_[i] & kNode)); }
  int32_t count(int64_t i) const { return visits_of(ranked_[i]); }

  static constexpr int64_t kFew = 24;

  // The number by which a node comes before others.
  static uint64_t named(uint64_t counted, const int64_t* names) {
    if (!names) return counted;
    return (counted & ~kNode) | (kNode - uint64_t(names[kNode - (counted & kNode)]));
  }

  // Each node once, into `counted_`; returns their number.
  int64_t count(const int64_t* visits, int64_t num_visits) {
    const uint64_t mask = slots_.size() - 1;
    uint64_t* slots = slots_.data();
    int64_t num_nodes = 0;
    for (int64_t i = 0; i < num_visits; ++i) {
      const uint64_t node = kNode - uint64_t(visits[i]);
      uint64_t s = (node * 0x9E3779B97F4A7C15u >> 32) & mask;  // Fibonacci hashing
      while (slots[s] != 0 && (slots[s] & kNode) != node) s = (s + 1) & mask;
      used_[num_nodes] = uint32_t(s);
      num_nodes += slots[s] == 0;
      slots[s] = (slots[s] | node) + kOneVisit;
    }
    for (int64_t i = 0; i < num_nodes; ++i) counted_[i] = std::exchange(slots[used_[i]], 0);
    return num_nodes;
  }

  // Whether one number is larger than another cannot be predicted, so few are ranked by counting
  // the larger ones and not by sorting.
  void rank_few(int64_t num_nodes, const int64_t* names) {
    const uint64_t* key = counted_.data();
    uint64_t by_name[kFew];
    if (names) {
      for (int64_t i = 0; i < num_nodes; ++i) by_name[i] = named(counted_[i], names);
      key = by_name;
    }
    for (int64_t i = 0; i < num_nodes; ++i) {
      int64_t rank = 0;
      for (int64_t j = 0; j < num_nodes; ++j) rank += key[j] > key[i];
      ranked_[rank] = counted_[i];
    }
  }

  std::vector<uint64_t> slots_;  // open addressing, at most half full; all zero between calls
  std::vector<uint32_t> used_;
  std::vector<uint64_t> counted_, ranked_;
};

}  // namespace lg
