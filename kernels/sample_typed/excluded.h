// excluded.h: edges that queries leave out, by ascending values, each once: a query above a position
// (queries.h). Draws are made of the others, and then skip these, so that the others are as likely as if
// these were not there. For CPU and CUDA.
#pragma once

#include "sample_typed/search.h"

namespace lg {

struct ExcludedPart {
  const int64_t *begin, *end;
  int64_t moved;  // added to each, it stands below the number of the node that draws

  LG_HD int64_t size() const { return end - begin; }

  // The value that is this one among those that are left, counted from where the part was looked for.
  LG_HD int64_t skip(int64_t value) const {
    for (const int64_t* out = begin; out < end && *out + moved <= value; ++out) ++value;
    return value;
  }
};

struct ExcludedEdges {
  const int64_t* values;
  int64_t count;

  // Those that, `moved`, lie in [begin, end): along paths numbers go on, but queries leave out by their own.
  LG_HD ExcludedPart within(int64_t begin, int64_t end, int64_t moved) const {
    const int64_t from = first_not_below(values, count, begin - moved);
    const int64_t to = from + first_not_below(values + from, count - from, end - moved);
    return {values + from, values + to, moved};
  }
};

}  // namespace lg
