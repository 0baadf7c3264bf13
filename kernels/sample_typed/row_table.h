// row_table.h: a table of nodes (common/node_table.h) for batches of many small queries that share no nodes and
// take turns a few times a hop.
//
// It holds the nodes of one query at a time, with those that it had found before, and so stays in the first
// caches. Measured on 1024 rows, the time of a batch beside that with the hash of all nodes: 0.72 with 660 nodes a
// row, 0.66 with 290; and 1.0 with 3700.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/fetch.h"
#include "sample_typed/queries.h"

namespace lg {

class RowTable {
  // A slot is of the turn whose number it carries.
  struct Slot {
    int32_t local;
    uint32_t turn;
  };

 public:
  // Whether seeds are in order of rows, a query each: then so are the nodes that a hop finds. And whether rows of
  // the batch before had few nodes.
  bool suits(const Queries& queries, int64_t num_seeds) const {
    return queries.by_row && queries.of_seed && !queries.along_path &&
           nodes_of_row_ <= kMostNodes &&
           std::is_sorted(queries.of_seed, queries.of_seed + num_seeds);
  }

  // Tells of a batch, whatever table it was in.
  void note(const Queries& queries, int64_t num_nodes) {
    if (queries.by_row) nodes_of_row_ = num_nodes / std::max<int64_t>(queries.num_queries, 1);
  }

  void start(const Queries& queries) {
    shift_ = queries.shift;
    query_ = -1;
    last_.assign(size_t(queries.num_queries), -1);
    stretches_.clear();
  }

  void reserve(const NodeList&, int64_t) {}
  void prefetch(int64_t) const {}

  // What changes with turns alone stays in registers, as members of the table cannot beside stores to slots.
  struct InRegisters {
    RowTable& table;
    Slot* slots;
    uint64_t mask;
    uint32_t turn;
    int64_t query, full;

    explicit InRegisters(RowTable& table) : table(table) { refresh(); }
    void refresh() {
      slots = table.slots_.data();
      mask = table.mask_;
      turn = table.turn_;
      query = table.query_;
      full = table.full_;
    }

    void prefetch(int64_t node) const { fetch_line(&slots[home(node) & mask]); }

    int32_t insert(int64_t node, NodeList& list) {
      if ((node >> table.shift_) != query || list.count >= full) {
        table.turn_to(node >> table.shift_, list);
        refresh();
      }
      uint64_t i = home(node) & mask;
      for (; slots[i].turn == turn; i = (i + 1) & mask) {
        if (list.ids[slots[i].local] == node) return slots[i].local;
      }
      slots[i] = {int32_t(list.count), turn};
      list.ids[list.count] = node;
      return int32_t(list.count++);
    }
  };
  InRegisters in_registers() { return InRegisters(*this); }

  int32_t insert(int64_t node, NodeList& list) { return in_registers().insert(node, list); }
  void clear(const NodeList&) {}  // start() does

 private:
  // Nodes of one query, found in one turn.
  struct Stretch {
    int64_t begin, end;
    int32_t before;  // the one before of the same query, or -1
  };
  static constexpr uint64_t kLeastSlots = 8192;
  static constexpr int64_t kMostNodes = 3072;  // of a row

  static uint64_t home(int64_t node) {
    return uint64_t(node) * 0x9E3779B97F4A7C15u >> 32;  // Fibonacci hashing
  }

  // Begins a turn of a query, with room for as many nodes again as it has.
  __attribute__((noinline)) void turn_to(int64_t query, NodeList list) {
    if (query_ >= 0 && begin_ < list.count) {
      stretches_.push_back({begin_, list.count, last_[size_t(query_)]});
      last_[size_t(query_)] = int32_t(stretches_.size()) - 1;
    }
    query_ = query;
    begin_ = list.count;
    int64_t known = 0;
    for (int32_t s = last_[size_t(query)]; s >= 0; s = stretches_[size_t(s)].before) {
      known += stretches_[size_t(s)].end - stretches_[size_t(s)].begin;
    }
    empty(known);
    for (int32_t s = last_[size_t(query)]; s >= 0; s = stretches_[size_t(s)].before) {
      const Stretch& stretch = stretches_[size_t(s)];
      for (int64_t i = stretch.begin; i < stretch.end; ++i) {
        uint64_t at = home(list.ids[i]) & mask_;
        while (slots_[at].turn == turn_) at = (at + 1) & mask_;
        slots_[at] = {int32_t(i), turn_};
      }
    }
  }

  // At most a quarter of the slots are taken, and mostly few of them: most nodes are new, and so find theirs at
  // once, as the processor predicts.
  void empty(int64_t known) {
    uint64_t size = kLeastSlots;
    while (size < 8 * uint64_t(known)) size *= 2;
    if (size > slots_.size()) slots_.resize(size);
    mask_ = size - 1;
    full_ = begin_ + int64_t(size / 4) - known;
    if (++turn_ == 0) {
      std::fill(slots_.begin(), slots_.end(), Slot{0, 0});
      turn_ = 1;
    }
  }

  int64_t nodes_of_row_ = 0;
  int shift_ = 0;
  int64_t query_ = -1;
  int64_t begin_ = 0;  // of the turn's nodes
  int64_t full_ = 0;   // nodes of the batch when the slots are too few
  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
  uint32_t turn_ = 0;
  std::vector<Stretch> stretches_;
  std::vector<int32_t> last_;  // by query
};

}  // namespace lg
