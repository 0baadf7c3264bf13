// sample_neighbors.h: the sampled neighbourhood of some seeds, written into an arena.
//
// The batch is a pure function of (graph, seeds, fanouts, options, key): see common/draw.h.
// Nodes are numbered in order of first occurrence, seeds first: destinations in order, their picks
// in the order of draws, or in adjacency order where all neighbours are taken. Destination j of any
// hop is nodes[j].
//
// Arena, from its start: nodes int64 [num_nodes]; from its end downward, hop by hop:
//   indptr int32 [num_dst + 1], indices int32 [num_edges], edge_ids int64 [num_edges] if asked for.
// Each array starts at a multiple of 64 bytes. With Expand::kNew all hops share one such group, and
// each hop is a prefix of the next, since the nodes that a hop expands are a consecutive range of
// `nodes`.
#pragma once

#include <cstdint>
#include <vector>

#include "sample_neighbors/workspace.h"

namespace lg {

constexpr int64_t kAlignment = 64;
constexpr int64_t kAllNeighbors = -1;      // as a fanout
constexpr int64_t kMaxLocal = 0x7fffffff;  // local ids and edge counts are int32

enum class Expand {
  kAll,  // every node known so far is a destination of the next hop (DGL)
  kNew,  // only the nodes that the last hop found (PyG)
};

template <class Index>
struct SampleRequest {
  // The graph. Checked at load: kernels trust its indices.
  const int64_t* indptr;
  const Index* indices;
  int64_t num_nodes;

  const int64_t* seeds;
  int64_t num_seeds;
  std::vector<int64_t> fanouts;  // nearest hop first

  uint64_t seed;
  uint32_t epoch, step;

  bool replace;
  Expand expand;
  bool edge_ids;
  int64_t max_local;  // kMaxLocal; tests lower it

  uint8_t* arena;
  int64_t arena_bytes;
};

struct HopLayout {
  int64_t num_dst, num_src, num_edges;
  int64_t indptr_offset, indices_offset, edge_ids_offset;  // edge_ids_offset -1: none
};

struct SampleLayout {
  int64_t num_nodes;
  std::vector<HopLayout> hops;
  int64_t free_begin, free_end;
};

// Throws SeedError, SamplerConfigError, ArenaTooSmall. The workspace is left clean in every case.
template <class Index>
SampleLayout sample_neighbors(Workspace& workspace, const SampleRequest<Index>& request);

}  // namespace lg
