// one_run.h: a graph without types as an index of runs (runs.h): each list is one run.
#pragma once

#include <cstdint>

namespace lg {

struct OneRun {
  const int64_t* indptr;

  template <class Add>
  void visit(int64_t node, const Add& add) const {
    add(0, indptr[node], uint32_t(indptr[node + 1] - indptr[node]));
  }
};

inline void prefetch_runs(const OneRun&, int64_t) {}  // samplers fetch where lists begin anyway

template <class Runs>
constexpr bool kHasTypes = true;
template <>
inline constexpr bool kHasTypes<OneRun> = false;

}  // namespace lg
