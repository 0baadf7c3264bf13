// exclusion.h: what the queries of a batch leave out (excluded.h), as they name it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sample_typed/excluded.h"
#include "sample_typed/queries.h"

namespace lg {

class Exclusion {
 public:
  template <class Ids>
  void start(const Queries& queries, const Ids& ids) {
    values_.clear();
    for (int64_t i = 0; i < queries.num_excluded; ++i) {
      values_.push_back(ids.above(queries.excluded_of[i]) | queries.excluded[i]);
    }
    std::sort(values_.begin(), values_.end());
    values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
  }

  bool empty() const { return values_.empty(); }

  ExcludedEdges edges() const { return {values_.data(), int64_t(values_.size())}; }

 private:
  std::vector<int64_t> values_;
};

}  // namespace lg
