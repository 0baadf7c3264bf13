// graphs.h: random graphs that pass check_csc, most of them tiny and odd.
#pragma once

#include <limits>

#include "common/batch.h"
#include "fuzz/choices.h"
#include "fuzz/exact.h"

namespace lg::fuzz {

template <class Index>
struct Graph {
  Exact<int64_t> indptr;
  Exact<Index> indices;
  Exact<int64_t> names;  // empty: nodes draw in the name of their ids

  int64_t num_nodes() const { return indptr.size() - 1; }
  Csc<Index> csc() const {
    return {indptr.data(), indices.data(), num_nodes(), names.size() ? names.data() : nullptr};
  }
};

// A few in a thousand are large enough for tables to grow and for many chunks of nodes.
int64_t random_num_nodes(Choices& choose);

// No nodes, no edges, loops, repeated edges, hubs, nodes without in-neighbours, names: all of them
// likely.
template <class Index>
Graph<Index> random_graph(Choices& choose);

// 2^34 neighbours, all of them node 0, without memory: the pages of an untouched map are one page.
// nullptr on a system that lends no such address space.
const int32_t* endless_indices();

// An id that is no node: just outside, far outside, or one that narrow arithmetic would wrap.
template <class Id>
Id bad_id(Choices& choose, int64_t num_nodes) {
  constexpr Id kLeast = std::numeric_limits<Id>::min(), kMost = std::numeric_limits<Id>::max();
  return choose.one_of<Id>({-1, Id(-1 - choose.size(1000)), kLeast, Id(num_nodes),
                            Id(num_nodes + choose.size(1000)), kMost, Id(kMost / 2 + num_nodes)});
}

}  // namespace lg::fuzz
