// edge_types.h: lists sorted by edge type, and the runs that they are cut into.
//
// A run is the in-neighbours of one node by edges of one type; a node's runs are in ascending order of
// type. Types are checked by the caller.
#pragma once

#include <cstdint>

namespace lg {

constexpr int32_t kMaxEdgeTypes = 4095;  // types are 0 to kMaxEdgeTypes - 1

//   out  order[E]        positions of the edges, each node's by type, and those of a type as they lie
void sort_edge_types(const int64_t* indptr, int64_t num_nodes, const int32_t* types,
                     int64_t* order);

//   out  first_run[N + 1]  of sorted lists: the runs of node v are first_run[v] to first_run[v + 1] - 1
//   ret                    whether each node's edges are sorted by type
bool count_edge_type_runs(const int64_t* indptr, int64_t num_nodes, const int32_t* types,
                          int64_t* first_run);

//   out  run_type[R], run_ptr[R + 1]   a run's type, and where it begins
void index_edge_types(const int64_t* indptr, int64_t num_nodes, const int32_t* types,
                      int32_t* run_type, int64_t* run_ptr);

}  // namespace lg
