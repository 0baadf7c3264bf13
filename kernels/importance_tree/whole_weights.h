// whole_weights.h: edge weights as whole numbers, exact and alike on any machine.
//
// The weights of some edges, of a node or of a layer, are counted in units that depend on the greatest
// of them and on their number alone: so fine that their sum just stays below 2^63. They are rounded
// down, but one that is positive counts at least 1. Edges without weights count 1 each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "build_alias/weight_bits.h"
#include "common/error.h"
#include "importance_tree/importance.h"

namespace lg {

// Of a graph's edges: floats, doubles, or none.
struct EdgeWeights {
  const float* narrow = nullptr;
  const double* wide = nullptr;

  explicit operator bool() const { return narrow != nullptr || wide != nullptr; }
  uint64_t bits(int64_t edge) const {
    return narrow != nullptr ? weight_bits(narrow[edge]) : weight_bits(wide[edge]);
  }
  // Throws GraphFormatError: the greatest weight, by its bits, shows that one is no weight.
  void check(uint64_t greatest_bits) const {
    if (greatest_bits < (narrow ? kInfinityBits<float> : kInfinityBits<double>)) return;
    fail<GraphFormatError>(
        "edge_weight holds a negative, infinite or undefined number. Weights must be finite and "
        "not "
        "negative.");
  }
  int fraction_bits() const { return narrow ? kFractionBits<float> : kFractionBits<double>; }
};

class WeightUnits {
 public:
  // greatest_bits: EdgeWeights::bits() of the greatest weight, that passed check().
  WeightUnits(const EdgeWeights& weights, uint64_t greatest_bits, int64_t count)
      : fixed_(std::max<uint64_t>(greatest_bits, 1), weights.fraction_bits()) {
    for (; count > 0; count /= 2) ++cut_;
  }

  uint64_t operator()(uint64_t bits) const {
    return bits == 0 ? 0 : std::max<uint64_t>(fixed_(bits) >> cut_, 1);
  }

 private:
  FixedPoint fixed_;
  int cut_ = 1;
};

// The edges of one adjacency list.
class ListWeights {
 public:
  ListWeights(const EdgeWeights& weights, int64_t start, int64_t degree)
      : weights_(weights), start_(start), sum_(uint64_t(degree)) {
    if (!weights) return;
    uint64_t greatest = 0;
    for (int64_t i = 0; i < degree; ++i) greatest = std::max(greatest, weights.bits(start + i));
    weights.check(greatest);
    units_.emplace(weights, greatest, degree);
    sum_ = 0;
    for (int64_t i = 0; i < degree; ++i) sum_ += (*this)[i];
  }

  uint64_t sum() const { return sum_; }
  uint64_t operator[](int64_t i) const { return units_ ? (*units_)(weights_.bits(start_ + i)) : 1; }

 private:
  const EdgeWeights& weights_;
  const int64_t start_;
  std::optional<WeightUnits> units_;  // none: the edges have no weights
  uint64_t sum_;
};

// What edge i adds to its source's importance: the square of its part of the list's weight. Each
// factor is rounded down, so that 1 of degree gives ImportanceUnits::of_edge(degree).
inline int64_t importance_of(const ImportanceUnits& units, const ListWeights& list, int64_t i) {
  __extension__ using uint128_t = unsigned __int128;
  const uint64_t weight = list[i];
  if (weight == 0) return 0;
  const auto part_of = [&](uint64_t whole) {
    return uint64_t(uint128_t(whole) * weight / list.sum());
  };
  return std::max(int64_t(part_of(part_of(uint64_t(units.one())))), int64_t(1));
}

}  // namespace lg
