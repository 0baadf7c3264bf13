// build_runs.h: edge lists, one an edge type, grouped into runs: one a destination and edge type,
// sorted by (time code, place in the list).
//
// First count_runs() for each list; then the caller turns counts into begins; then fill_runs() for
// each. A list's runs are number `first` + v * `step` of the graph's, for its destinations v.
//
//   in   src, dst [num_edges]   below num_src and num_dst; others are a GraphFormatError that names
//                               the list, the edge and the id. At most 2^32 - 1 edges
//   in   code [num_edges]       nullptr: no times, in place of which zeros are written
//   in   weight [num_edges]     of weight_bytes each, 4 or 8; nullptr: none
//   out  num_in_run[runs]       added to
//   in   begin[runs]            where each run begins in the arrays below
//   out  indices                first_src + src
//   out  edge_time, order, weight   likewise, or nullptr; order is the place in the list
//
// Memory: 8 bytes an edge of the list and 4 a destination, while it is filled.
#pragma once

#include <cstdint>

namespace lg {

template <class Id>
struct EdgeList {
  const char* name;
  const Id* src;
  const Id* dst;
  int64_t num_edges, num_src, num_dst;
  int64_t first_run, step;  // of its runs
  const uint32_t* code;
  const void* weight;
};

template <class Index>
struct RunsOut {
  Index* indices;
  uint32_t* edge_time;
  uint32_t* order;
  void* weight;
  int64_t weight_bytes;
};

template <class Id>
void count_runs(const EdgeList<Id>& edges, int64_t* num_in_run);

// The ids have passed count_runs().
template <class Id, class Index>
void fill_runs(const EdgeList<Id>& edges, int64_t first_src, const int64_t* begin,
               const RunsOut<Index>& out);

}  // namespace lg
