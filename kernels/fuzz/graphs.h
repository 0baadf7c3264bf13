// graphs.h: random graphs that pass check_csc, most of them tiny and odd.
#pragma once

#include <cmath>
#include <limits>

#include "build_alias/build_alias.h"
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

// Often equal to others, often zero, up to the least and the greatest that there are.
template <class Weight>
Weight random_weight(Choices& choose) {
  using Limits = std::numeric_limits<Weight>;
  if (choose.flag()) return Weight(choose.size(1000));
  return choose.one_of<Weight>({Weight(0), Weight(-0.0), Weight(1), Limits::min(), Limits::max(),
                                Limits::denorm_min(), Weight(1) + Limits::epsilon(),
                                std::ldexp(Weight(1), int(choose.between(-140, 120)))});
}

// The alias tables of random weights, or none, of lists that begin where list_ptr[num_lists + 1] says.
inline Exact<AliasEntry> random_table(Choices& choose, const Exact<int64_t>& list_ptr) {
  const int64_t num_lists = list_ptr.size() - 1;
  Exact<double> weights(choose.flag() ? list_ptr[num_lists] : 0);
  for (int64_t e = 0; e < weights.size(); ++e) weights[e] = random_weight<double>(choose);
  Exact<AliasEntry> table(weights.size());
  if (table.size()) build_alias(list_ptr.data(), num_lists, weights.data(), table.data());
  return table;
}

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
