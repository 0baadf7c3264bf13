// draw_negatives.h: nodes that no edge leads to, or from: the false ends of false edges.
//
// Seed row i is an edge src[i] -> dst[i] of one type, asked about at a time. Its negatives j < num_dst
// take the place of dst[i], the others that of src[i]. Try a of negative j is draw j of the name
// (rows[i], edge type, a) in the stream of tag "nega", uniform among the nodes of the end's type; where
// there are alias tables, draw 2 j, and draw 2 j + 1 is the coin of an end that has one. A node that is
// the end itself, makes a known edge, or is not there yet, is drawn again; after `tries` draws
// the negative is -1. So a negative depends on its own row alone.
//
//   in   rows[n]           below 2^48: by which rows draw
//   in   src[n], dst[n]    null, both: nothing is known, and first tries are taken as they come
//   in   until[n]          codes from which on edges and nodes are not there yet; null: all are there
//   in   tried[n num]      null, or the try that each negative begins with, for who looks edges up elsewhere
//   out  tried[n num]      the try that was taken; `tries` where none was
//   out  out[n num]        node ids of the graph, or -1
// O(run of a candidate) a try for destinations, O(run of dst[i]) for sources.
#pragma once

#include "common/alias.h"
#include "find_edges/type_runs.h"

namespace lg {

template <class Index>
struct NegativesRequest {
  TypeRuns<Index> runs;
  NodeRange sources;
  const uint32_t* edge_time;  // of the edges; null where they, or the rows, have no times
  const uint32_t* src_time;   // of the sources, from the type's first on; null likewise
  const uint32_t* dst_time;
  const int64_t* rows;
  const int64_t* src;
  const int64_t* dst;
  const uint32_t* until;
  int64_t num_rows, num, num_dst, tries;
  const AliasEntry* src_alias;  // of the sources by weight, [sources.count]; null: uniform
  const AliasEntry* dst_alias;
  uint64_t seed;
  uint32_t epoch;
  uint32_t hop;  // what draws of the edge type have in place of a hop's number
  int64_t* tried = nullptr;
};

// Throws SeedError: rows or ends out of range, or a try that is none.
template <class Index>
void draw_negatives(const NegativesRequest<Index>& request, int64_t* out);

}  // namespace lg
