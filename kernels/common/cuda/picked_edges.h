// picked_edges.h: the edges of a hop as whoever picks them leaves them: each edge's neighbour and its
// place, and that the neighbour occurs there (node_stamps.h).
#pragma once

#include "common/cuda/node_stamps.h"

namespace lg {

template <class Index>
struct PickedEdges {
  NodeStamps known;
  int64_t position_of_edge_0;
  Index* picked;
  int64_t* edge_ids;  // nullptr: not asked for

  __device__ void put(int64_t edge, Index neighbor, int64_t edge_id) const {
    picked[edge] = neighbor;
    if (edge_ids != nullptr) edge_ids[edge] = edge_id;
    known.occur(int64_t(neighbor), position_of_edge_0 + edge);
  }
};

}  // namespace lg
