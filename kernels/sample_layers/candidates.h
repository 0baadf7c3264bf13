// candidates.h: numbers for the nodes that a layer may take: known nodes keep their local ids, others
// follow in the order in which they are added.
//
// They stand in the batch's own table, which holds the known nodes alone when this object is gone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/workspace.h"

namespace lg {

template <class Table>
class Candidates {
 public:
  Candidates(Table& table, const int64_t* known, int64_t num_known, std::vector<int64_t>& ids)
      : table_(table), num_known_(num_known), ids_(ids), list_{reserve(ids, num_known), num_known} {
    std::copy_n(known, num_known, list_.ids);  // a hash table that grows reads them
  }
  ~Candidates() {
    table_.clear(list_);
    NodeList known{list_.ids, 0};
    for (int64_t i = 0; i < num_known_; ++i) table_.insert(list_.ids[i], known);
  }
  Candidates(const Candidates&) = delete;

  int64_t count() const { return list_.count; }
  int64_t node(int64_t number) const { return list_.ids[number]; }

  void prefetch(int64_t node) { table_.prefetch(node); }

  // Makes room; must come before nodes are added.
  void expect(int64_t num_more) {
    list_.ids = reserve(ids_, list_.count + num_more + 1);
    table_.reserve(list_, list_.count + num_more);
  }

  int32_t add(int64_t node) { return table_.insert(node, list_); }
  void add(const int64_t* nodes, int64_t count, int32_t* numbers) {
    insert_many(table_, nodes, count, list_, numbers);
  }

  // -1: no candidate.
  int32_t find(int64_t node) { return table_.find(node); }

 private:
  Table& table_;
  const int64_t num_known_;
  std::vector<int64_t>& ids_;
  NodeList list_;
};

}  // namespace lg
