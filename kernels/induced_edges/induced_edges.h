// induced_edges.h: the edges among the nodes of each of many groups.
//
// Group g has nodes[ptr[g]] to nodes[ptr[g + 1] - 1], distinct. Every node is a destination, and keeps
// those in-neighbours that are in its own group, in adjacency order, repeated edges and loops
// included. Sources are named by their places in `nodes`.
#pragma once

#include <cstdint>
#include <functional>

#include "common/batch.h"

namespace lg {

template <class Index>
struct InducedEdgesRequest {
  Csc<Index> graph;
  const int64_t* nodes;
  int64_t num_nodes;
  const int64_t* ptr;
  int64_t num_groups;
  int64_t max_local = kMaxLocal;  // tests lower it
};

// indptr[num_nodes + 1], indices[num_edges] and ids[num_edges], until the call returns.
using TakeEdges = std::function<void(const Edges& edges, int64_t num_edges)>;

// Calls take() once, at the end. Throws SeedError: a node out of range or repeated in its group, or
// groups that do not follow each other; SamplerConfigError: more nodes or edges than max_local.
template <class Index>
void induced_edges(Workspace& workspace, const InducedEdgesRequest<Index>& request,
                   const TakeEdges& take);

}  // namespace lg
