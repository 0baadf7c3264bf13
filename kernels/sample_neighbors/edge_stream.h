// edge_stream.h: the edges of a hop on their way from positions in `indices` to local ids.
//
// They pass three stages in one loop, each a number of edges behind the one before it, so that what
// it reads at random was prefetched by then:
//   fetch    prefetch indices[position]
//   read     position -> neighbour, prefetch its table entry
//   insert   neighbour -> local id
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/batch.h"
#include "common/fetch.h"
#include "common/signals.h"

namespace lg {

template <class Batch, class Index>
class EdgeStream {
 public:
  EdgeStream(Batch& batch, const Csc<Index>& graph)
      : batch_(batch),
        ids_(batch.ids()),
        indices_(graph.indices),
        values_(batch.workspace().template scratch<Scratch>().values) {}

  // The first edge of a hop gets its local id at edges.indices[first].
  void start(int64_t first) {
    num_inserted_ = first;
    inserted_ = read_ = fetched_ = picked_ = 0;
  }

  // Room for the positions of `count` edges that are to come next, as batch.ids() has them. What was
  // written there stays.
  int64_t* reserve(int64_t count) { return lg::reserve(values_, picked_ + count) + picked_; }

  // Takes the edges whose positions were written there. Those taken before set out now: the processor
  // overlaps their waiting for memory with the choice of these, on which it does not depend.
  void append(int64_t count) {
    advance();
    picked_ += count;
    forget_inserted();
  }

  // Ends a hop: all edges come to their local ids.
  void finish() {
    advance();
    read(fetched_);
    insert(fetched_);
  }

  int64_t num_inserted() const { return num_inserted_; }

 private:
  // Measured, in edges. Less, and reads wait for memory; more, and what was fetched is pushed out of
  // the first-level cache again.
  static constexpr int64_t kReadBehind = 128, kInsertBehind = 224;  // behind fetch

  struct Scratch {
    std::vector<int64_t> values;  // positions, then neighbours
  };

  void advance() {
    const int64_t count = picked_ - fetched_, under_way = fetched_ - inserted_;
    const int64_t first = std::clamp<int64_t>(kInsertBehind - under_way, 0, count);
    fetch(fetched_ + first);
    read(fetched_ - kReadBehind);
    insert(fetched_ - kInsertBehind);
    signals_.in_pieces(0, count - first, [&](int64_t begin, int64_t end) { flow(end - begin); });
  }

  void fetch(int64_t end) {
    for (; fetched_ < end; ++fetched_) fetch_line(&indices_[ids_.position(values_[fetched_])]);
  }

  void read(int64_t end) {
    for (; read_ < end; ++read_) {
      values_[read_] = neighbor(values_[read_]);
      batch_.prefetch(values_[read_]);
    }
  }

  int64_t neighbor(int64_t value) const {
    return ids_.at_neighbor(value, indices_[ids_.position(value)]);
  }

  void insert(int64_t end) {
    const int64_t count = std::max<int64_t>(end - inserted_, 0);
    batch_.add(values_.data() + inserted_, count, reserve_local(count));
    inserted_ += count;
    num_inserted_ += count;
  }

  // The three stages at once, which are as far apart as they shall be.
  void flow(int64_t count) {
    int32_t* local = reserve_local(count);
    int64_t* value = values_.data() + fetched_;
    const Index* indices = indices_;
    const auto ids = ids_;
    batch_.with_table([&](auto& table, NodeList& nodes) {
      for (int64_t i = 0; i < count; ++i) {
        fetch_line(&indices[ids.position(value[i])]);
        const int64_t from = value[i - kReadBehind];
        const int64_t neighbor = ids.at_neighbor(from, indices[ids.position(from)]);
        value[i - kReadBehind] = neighbor;
        table.prefetch(neighbor);
        local[i] = table.insert(value[i - kInsertBehind], nodes);
      }
    });
    for (int64_t* stage : {&fetched_, &read_, &inserted_, &num_inserted_}) *stage += count;
  }

  int32_t* reserve_local(int64_t count) {
    batch_.reserve_nodes(count);
    return lg::reserve(batch_.edges().indices, num_inserted_ + count) + num_inserted_;
  }

  void forget_inserted() {
    constexpr int64_t kMostKept = 1024;
    if (inserted_ < kMostKept) return;
    std::copy(values_.begin() + inserted_, values_.begin() + picked_, values_.begin());
    for (int64_t* stage : {&picked_, &fetched_, &read_, &inserted_}) *stage -= inserted_;
  }

  Batch& batch_;
  const std::decay_t<decltype(std::declval<Batch&>().ids())> ids_;
  const Index* const indices_;
  std::vector<int64_t>& values_;
  int64_t inserted_ = 0, read_ = 0, fetched_ = 0, picked_ = 0;  // where the stages are, in values_
  int64_t num_inserted_ = 0;                                    // where they are in edges.indices
  SignalWatch signals_;
};

}  // namespace lg
