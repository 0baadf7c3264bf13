// rows.h: edges with their weights, appended destination by destination.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/workspace.h"

namespace lg {

class Rows {
 public:
  Rows(Edges& edges, std::vector<double>& values, bool edge_ids, bool normalize)
      : edges_(edges), values_(values), edge_ids_(edge_ids), normalize_(normalize) {}

  int64_t num_edges() const { return num_edges_; }

  // The rows of a hop that follow, to be numbered from `first_row` to `end_row` - 1.
  void start(int64_t first_row, int64_t end_row) {
    if (first_row == 0) num_edges_ = row_ = 0;
    indptr_ = reserve(edges_.indptr, end_row + 1);
    // Rows that nobody has ended are empty.
    std::fill(indptr_ + row_, indptr_ + first_row + 1, int32_t(num_edges_));
    row_ = first_row;
  }

  // value: factor * the edge's part of its list.
  void add(int32_t source, int64_t edge_id, double value) {
    const int64_t edge = num_edges_ + row_size_;
    reserve(edges_.indices, edge + 1)[edge] = source;
    if (edge_ids_) reserve(edges_.ids, edge + 1)[edge] = edge_id;
    reserve(values_, row_size_ + 1)[row_size_] = value;
    ++row_size_;
  }

  // The destination's edges now are all added; `whole`: what its list's parts add up to.
  void end_row(double whole) {
    double divisor = whole;
    if (normalize_) {
      divisor = 0;
      for (int64_t i = 0; i < row_size_; ++i) divisor += values_[i];
    }
    float* weights = reserve(edges_.weights, num_edges_ + row_size_) + num_edges_;
    for (int64_t i = 0; i < row_size_; ++i) weights[i] = float(values_[i] / divisor);
    num_edges_ += row_size_;
    row_size_ = 0;
    indptr_[++row_] = int32_t(num_edges_);
  }

 private:
  Edges& edges_;
  std::vector<double>& values_;  // of the row at work
  const bool edge_ids_, normalize_;
  int64_t row_ = 0, row_size_ = 0, num_edges_ = 0;
  int32_t* indptr_ = nullptr;
};

}  // namespace lg
