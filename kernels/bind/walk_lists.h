// walk_lists.h: the runs that walks leave nodes by, as Python has them.
#pragma once

#include "bind/bind.h"
#include "random_walk/walk_lists.h"

namespace lg::bind {

// With the memory that they point to: ops/walks.py has checked it.
class WalkRuns {
 public:
  WalkRuns(Offsets run_ptr, const std::vector<int64_t>& first, const std::vector<int64_t>& stride)
      : run_ptr_(run_ptr) {
    for (size_t s = 0; s < first.size(); ++s) steps_.push_back({first[s], stride[s]});
  }

  // Calls use(RunLists).
  template <class Use>
  auto with(const Use& use) const {
    return std::visit(
        [&](const auto& run_ptr) {
          using Offset = std::decay_t<decltype(*run_ptr.data())>;
          return use(RunLists<Offset>{run_ptr.data(), steps_.data(), int64_t(steps_.size())});
        },
        run_ptr_);
  }

 private:
  Offsets run_ptr_;
  std::vector<RunStep> steps_;
};

// Calls use() with the runs, or with the graph's lists where there are none.
template <class Index, class Use>
auto with_walk_lists(const WalkRuns* runs, const Csc<Index>& graph, const Use& use) {
  return runs ? runs->with(use) : use(WholeLists{graph.indptr});
}

}  // namespace lg::bind
