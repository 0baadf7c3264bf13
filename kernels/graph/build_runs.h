// build_runs.h: edge lists, one an edge type, grouped into runs: one a destination and edge type,
// sorted by (time code, place in the list). Two passes over memory, whatever the order of the edges:
//
//   count_cells()   for each list, checks its ids and counts the edges of each cell: 2^shift runs
//   divide_edges()  for each list, when cells have been joined to parts that a cache holds: brings
//                   its edges to their parts, in their order
//   sort_parts()    groups each part by run, and each run by time, in place
//
// A list's runs are number `first_run` + v * `step` of the graph's, for its destinations v.
// Memory: 4 bytes an edge (`run`), and 28 for each edge of the largest part.
#pragma once

#include <cstdint>
#include <vector>

namespace lg {

template <class Id>
struct EdgeList {
  const Id* src;
  const Id* dst;
  int64_t num_edges, num_src, num_dst;
  int64_t first_run, step;  // of its runs

  int64_t run(int64_t edge) const { return first_run + int64_t(dst[edge]) * step; }
};

// Values of 1, 2, 4, 8 or 16 bytes, one an edge.
struct Column {
  const void* given;  // [num_edges], of the list
  void* sorted;       // of all lists, run by run
  int64_t bytes;
};

struct Parts {
  int shift;
  const uint16_t* of_cell;
  int64_t* next;  // [count]: where each part's next edge goes
  int64_t count;
};

// Adds to num_in_cell. Ids that are not below num_src and num_dst are a GraphFormatError that names
// the list, the edge and the id.
template <class Id>
void count_cells(const char* name, const EdgeList<Id>& edges, int shift, int64_t* num_in_cell);

//   in   edges                  whose ids have passed count_cells(); perhaps a piece of a list
//   in   code [num_edges]       nullptr: no times, in place of which zeros are written
//   out  run                    the lower half of each edge's run
//   out  indices                first_src + src
//   out  edge_time              or nullptr
template <class Id, class Index>
void divide_edges(const EdgeList<Id>& edges, int64_t first_src, const uint32_t* code, const Parts& parts, uint32_t* run, Index* indices,
                  uint32_t* edge_time, const std::vector<Column>& columns);

//   in   first_run, begin[num_parts + 1]   of each part: its runs and its edges; below 2^32 edges
//                                          where there are times
//   in   run                               spoiled
//   i/o  edge_time, columns' `sorted`      edge_time nullptr: no times
//   out  run_ptr [runs + 1]                all zero before
template <class Ptr>
void sort_parts(const int64_t* first_run, const int64_t* begin, int64_t num_parts,
                const uint32_t* run, uint32_t* edge_time, const std::vector<Column>& columns,
                Ptr* run_ptr);

}  // namespace lg
