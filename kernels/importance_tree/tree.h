// tree.h: a Fenwick tree, which draws items 0 to size - 1 in proportion to their importance.
//
// int64 [size + 1]: entry 0 counts the items of positive importance; entry i > 0 is the sum over items
// i - (i & -i) to i - 1. So finding the item at a place on the line of all importances, and taking an
// item off that line, cost O(log size).
// Sums are taken without a sign: those of any array that is no such tree wrap, which is defined.
// Source: Fenwick, "A new data structure for cumulative frequency tables", SPE 24(3), 1994.
#pragma once

#include <cstdint>
#include <vector>

#include "common/node_table.h"
#include "common/workspace.h"

namespace lg {

// Makes the tree of the importances that stand in entries[1] to entries[size].
inline void build_tree(int64_t* entries, int64_t size) {
  entries[0] = 0;
  for (int64_t i = 1; i <= size; ++i) entries[0] += entries[i] > 0;
  for (int64_t i = 1; i <= size; ++i) {
    const int64_t parent = i + (i & -i);
    if (parent <= size) entries[parent] += entries[i];
  }
}

// A tree of this thread alone: what is taken off is subtracted in place.
class OwnTree {
 public:
  OwnTree(int64_t* entries, int64_t size) : entries_(entries), size_(size) {}

  int64_t size() const { return size_; }
  uint64_t operator[](int64_t i) { return uint64_t(entries_[i]); }
  void subtract(int64_t i, uint64_t importance) {
    entries_[i] = int64_t(uint64_t(entries_[i]) - importance);
  }

 private:
  int64_t* entries_;
  int64_t size_;
};

// A tree that threads share: what one of them takes off is noted beside it, in memory that follows the
// number of items taken. The entries that most searches pass, those of long sums, are copied instead:
// in the tree itself they lie on as many pages and compete for few lines of the cache.
class SharedTree {
 public:
  struct Scratch {
    std::vector<uint64_t> long_sums, notes;
    HashTable table;
    std::vector<int64_t> ids;
  };

  SharedTree(const int64_t* entries, int64_t size, Scratch& scratch)
      : entries_(entries), size_(size), scratch_(scratch) {
    while (size >> shift_ > kMaxLongSums) ++shift_;
    uint64_t* long_sums = reserve(scratch.long_sums, (size >> shift_) + 1);
    for (int64_t i = 0; i <= size >> shift_; ++i) long_sums[i] = uint64_t(entries[i << shift_]);
    scratch.table.clear(noted_);  // of what the tree before noted
  }
  SharedTree(const SharedTree&) = delete;

  int64_t size() const { return size_; }

  uint64_t operator[](int64_t i) {
    if (is_long(i)) return scratch_.long_sums[i >> shift_];
    const int32_t note = noted_.count > 0 ? scratch_.table.find(i) : -1;
    return uint64_t(entries_[i]) - (note < 0 ? 0 : scratch_.notes[note]);
  }

  void subtract(int64_t i, uint64_t importance) {
    if (is_long(i)) {
      scratch_.long_sums[i >> shift_] -= importance;
      return;
    }
    const int64_t count = noted_.count;
    noted_.ids = reserve(scratch_.ids, count + 1);
    const int32_t note = scratch_.table.insert(i, noted_);
    if (note == count) reserve(scratch_.notes, count + 1)[note] = 0;
    scratch_.notes[note] += importance;
  }

 private:
  static constexpr int64_t kMaxLongSums = int64_t(1) << 14;

  bool is_long(int64_t i) const { return (i & ((int64_t(1) << shift_) - 1)) == 0; }

  const int64_t* entries_;
  const int64_t size_;
  Scratch& scratch_;
  int shift_ = 0;
  NodeList noted_{nullptr, 0};
};

// The length of the line.
template <class Tree>
uint64_t total(Tree& tree) {
  uint64_t sum = 0;
  for (int64_t i = tree.size(); i > 0; i &= i - 1) sum += tree[i];
  return sum;
}

// The item at `place`, 0 <= place < total(tree).
template <class Tree>
int64_t item_at(Tree& tree, uint64_t place) {
  int64_t item = 0;
  for (int64_t step = int64_t(1) << (63 - __builtin_clzll(uint64_t(tree.size()))); step > 0;
       step /= 2) {
    if (item + step > tree.size()) continue;
    const uint64_t sum = tree[item + step];
    const bool beyond = place >= sum;
    place -= beyond ? sum : 0;
    item += beyond ? step : 0;
  }
  return item;
}

template <class Tree>
uint64_t importance_of(Tree& tree, int64_t item) {
  uint64_t importance = tree[item + 1];
  for (int64_t i = item; i > (item & (item + 1)); i &= i - 1) importance -= tree[i];
  return importance;
}

template <class Tree>
void take_off(Tree& tree, int64_t item, uint64_t importance) {
  for (int64_t i = item + 1; i <= tree.size(); i += i & -i) tree.subtract(i, importance);
}

}  // namespace lg
