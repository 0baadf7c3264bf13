// batch.h: a batch in the making, as kernels take it by value. Python fills each structure from the
// object that keeps it, attribute by attribute: those of ops/cuda/sampling/batch.py.
#pragma once

#include "common/cuda/bus_order.h"
#include "common/cuda/node_stamps.h"

namespace lg {

// What draws depend on besides the node.
struct DrawKey {
  uint64_t seed;
  uint32_t epoch, step, hop;

  __device__ StreamKey stream(uint32_t tag = kKeysTag) const {
    return stream_key(seed, epoch, tag);
  }
};

struct Batch {
  NodeStamps known;
  int64_t* nodes;  // seeds first, then in order of first occurrence
  Word* error;
};

// A hop's destinations, nodes[*first] to nodes[*num_dst - 1], and where their edges go.
struct Hop {
  const int64_t* first;
  const int64_t* num_dst;
  const int64_t* first_edge;
  int64_t* last_edge;
  int32_t* starts;  // for each destination where its edges begin, and where the last one's end
  BusOrder order;   // of all destinations, counted from *first, where their lists come over the bus

  // Which one comes next: all destinations, as k runs from *first to *num_dst - 1.
  __device__ int64_t destination(int64_t k) const {
    return order.entries == nullptr ? k : *first + order.position(k - *first);
  }
};

template <class Index>
struct Edges {
  Index* picked;        // the neighbour
  int64_t* edge_ids;    // nullptr: not asked for
  float* edge_weights;  // nullptr: not asked for
  int32_t* edge_types;  // nullptr: there are none
  int32_t* indices;     // the neighbour's local id
};

// The edges as whoever picks them leaves them: each edge's neighbour and its place, and that the
// neighbour occurs there (node_stamps.h).
template <class Index>
struct PickedEdges {
  NodeStamps known;
  int64_t position_of_edge_0;
  Edges<Index> edges;

  __device__ PickedEdges(const Batch& batch, const Hop& hop, const Edges<Index>& of_hop)
      : known(batch.known), position_of_edge_0(*hop.num_dst - *hop.first_edge), edges(of_hop) {}

  // Without telling that the neighbour occurs.
  __device__ void note(int64_t edge, Index neighbor, int64_t edge_id) const {
    edges.picked[edge] = neighbor;
    if (edges.edge_ids != nullptr) edges.edge_ids[edge] = edge_id;
  }

  __device__ void put(int64_t edge, Index neighbor, int64_t edge_id) const {
    note(edge, neighbor, edge_id);
    known.occur(int64_t(neighbor), position_of_edge_0 + edge);
  }
};

}  // namespace lg
