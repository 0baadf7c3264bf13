// exclusion.h: edges into seeds that their queries leave out: draws are made of the others, and then skip
// these, so that the others are as likely as if these were not there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sample_typed/queries.h"

namespace lg {

class Exclusion {
 public:
  // Some of the values that are left out, ascending; a value is a query above a position.
  struct Part {
    const int64_t *begin, *end;
    int64_t size() const { return end - begin; }
  };

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

  Part within(int64_t begin, int64_t end) const {
    const int64_t *first = values_.data(), *last = first + values_.size();
    const int64_t* from = std::lower_bound(first, last, begin);
    return {from, std::lower_bound(from, last, end)};
  }

  // The value that is this one among those that are left, counted from where `part` was looked for.
  static int64_t skip(const Part& part, int64_t value) {
    for (const int64_t* out = part.begin; out < part.end && *out <= value; ++out) ++value;
    return value;
  }

 private:
  std::vector<int64_t> values_;
};

}  // namespace lg
