// type_runs.h: the lists of one edge type, and the search of one of them for a number.
#pragma once

#include <cstdint>

#include "common/batch.h"
#include "common/fetch.h"
#include "common/prefetch.h"

namespace lg {

// Nodes of one type: ids [first, first + count) of the graph.
struct NodeRange {
  int64_t first, count;

  // Ids that are none may lie anywhere: their distance from `first` wraps.
  bool has(int64_t node) const { return uint64_t(node) - uint64_t(first) < uint64_t(count); }
};

// The in-neighbours of each destination by edges of one type: a run of `indices`, for destination v the
// run of number first_run + (v - destinations.first) * stride. Checked at load: kernels trust it.
template <class Index>
struct TypeRuns {
  const Index* indices;
  const uint32_t* narrow;  // where runs begin, and the last one ends
  const int64_t* wide;     // the same; one of both is null
  int64_t first_run, stride;
  NodeRange destinations;

  int64_t run_of(int64_t destination) const {
    return first_run + (destination - destinations.first) * stride;
  }
  int64_t begin(int64_t run) const { return narrow ? int64_t(narrow[run]) : wide[run]; }

  LG_PREFETCHES void prefetch_bounds(int64_t run) const {
    if (narrow) {
      fetch_line(&narrow[run]);
    } else {
      fetch_line(&wide[run]);
    }
  }
  LG_PREFETCHES void prefetch_list(int64_t run) const {
    constexpr int64_t kLine = 64 / sizeof(Index), kMost = 8 * kLine;
    const int64_t from = begin(run), to = std::min(begin(run + 1), from + kMost);
    for (int64_t p = from; p < to; p += kLine) fetch_line(&indices[p]);
  }
};

// Where `wanted` first stands among values[count], or -1.
template <class Value>
using Scan = int64_t (*)(const Value* values, int64_t count, Value wanted);

// The scan for the instructions in use: Value is int32_t or int64_t.
template <class Value>
Scan<Value> scan();

}  // namespace lg
