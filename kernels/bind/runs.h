// runs.h: the runs of a graph with types, as Python has them, with the memory that they point to:
// ops/ has checked it.
#pragma once

#include <algorithm>

#include "bind/bind.h"
#include "sample_typed/one_run.h"
#include "sample_typed/sample_typed.h"

namespace lg::bind {

struct DenseArrays {
  Offsets run_ptr;
  Array<const int64_t> first_node, first_run, slot_ptr;
  Array<const int32_t> slot_type;
  Maybe<uint32_t> edge_time;
  Array<const uint8_t> timed;

  // Calls use(DenseRuns).
  template <class Use>
  auto with(const Use& use) const {
    const int64_t num_types = int64_t(first_node.size()) - 1;
    int64_t most_slots = 0;
    for (int64_t t = 0; t < num_types; ++t) {
      most_slots = std::max(most_slots, slot_ptr.data()[t + 1] - slot_ptr.data()[t]);
    }
    return std::visit(
        [&](const auto& offsets) {
          using Offset = std::decay_t<decltype(*offsets.data())>;
          return use(DenseRuns<Offset>{offsets.data(), first_node.data(), first_run.data(),
                                       slot_ptr.data(), slot_type.data(), num_types, most_slots});
        },
        run_ptr);
  }
};

struct SparseArrays {
  Array<const int64_t> run_ptr, first_run;
  Array<const int32_t> run_type;
  Maybe<uint32_t> edge_time;
  Array<const uint8_t> timed;

  // Calls use(SparseRuns).
  template <class Use>
  auto with(const Use& use) const {
    return use(SparseRuns{run_ptr.data(), first_run.data(), run_type.data()});
  }
};

using AnyLists = std::variant<const DenseArrays*, const SparseArrays*>;

// Calls use() with the runs of either layout, or, where there are none, with whole lists.
template <class Index, class Use>
auto with_runs(const AnyLists& lists, const Csc<Index>& graph, const Use& use) {
  return std::visit(
      [&](const auto* arrays) { return arrays ? arrays->with(use) : use(OneRun{graph.indptr}); },
      lists);
}

}  // namespace lg::bind
