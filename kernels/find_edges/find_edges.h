// find_edges.h: where edges stand in the runs of their destinations.
//
//   in   values[E]          of every edge: its source, or its id
//   in   destinations[n], wanted[n]   whose run is searched, and for which value
//   in   begins[n]          positions to search from; null: from where the run begins
//   out  positions[n]       of the first such edge, or -1
// Lists are scanned: those that end in a node of 10,000 edges take a microsecond.
#pragma once

#include "find_edges/type_runs.h"

namespace lg {

template <class Index, class Value>
struct FindEdgesRequest {
  TypeRuns<Index> runs;
  const Value* values;
  const int64_t* destinations;
  const int64_t* wanted;
  const int64_t* begins;
  int64_t count;
};

// Throws SeedError: a destination out of range.
template <class Index, class Value>
void find_edges(const FindEdgesRequest<Index, Value>& request, int64_t* positions);

// Which pairs of a source and a destination are edges:
//
//   in   sources[S], until[S]   until null: whatever their time
//   in   destinations[D]
//   out  known[S D]             row by row: 1 where there is an edge of a code below until, else 0
// Every destination's run is read once, however many sources there are.
template <class Index>
struct MarkEdgesRequest {
  TypeRuns<Index> runs;
  const uint32_t* edge_time;  // null where until is
  const int64_t* sources;
  const uint32_t* until;
  int64_t num_sources;
  const int64_t* destinations;
  int64_t num_destinations;
};

// Throws SeedError: a destination out of range.
template <class Index>
void mark_edges(const MarkEdgesRequest<Index>& request, uint8_t* known);

}  // namespace lg
