// index_edge_types.h: the in-neighbours of each node, by edge type.
//
// A run is the in-neighbours of one node by edges of one type; a node's runs are in ascending order of
// type, and within a run the edges keep their order.
#pragma once

#include <cstdint>

namespace lg {

constexpr int32_t kMaxEdgeTypes = 4095;  // types are 0 to kMaxEdgeTypes - 1

//   in   types[E]            checked by the caller
//   out  run_ptr[N + 1]      the runs of node v are run_ptr[v] to run_ptr[v + 1] - 1
//   ret                      whether each node's edges are sorted by type already
bool count_edge_type_runs(const int64_t* indptr, int64_t num_nodes, const int32_t* types,
                          int64_t* run_ptr);

//   out  run_type[R], run_end[R]   a run's type; where it ends, counted from the node's first edge
//   out  order[E]                  the node's edges by type, counted likewise; may be null if sorted
void index_edge_types(const int64_t* indptr, int64_t num_nodes, const int32_t* types,
                      const int64_t* run_ptr, int32_t* run_type, uint32_t* run_end,
                      uint32_t* order);

}  // namespace lg
