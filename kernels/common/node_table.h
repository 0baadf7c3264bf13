// node_table.h: each node of a batch gets a local id, in order of first occurrence.
//
// Both tables have one interface:
//   reserve(list, size)         must come before the list grows to more than `size` nodes
//   prefetch(node)              brings the node's entry into cache
//   insert(node, list) -> id    the node's local id; an unknown node is appended to `list`.
//                               Writes list.ids[list.count] in any case: the list needs room for
//                               one more.
//   find(node) -> id            the node's local id, or -1: unknown
//   in_registers()              for loops that insert many: what prefetches and inserts as the table does,
//                               until the next reserve()
//   clear(list)                 forgets the batch; must follow every batch, finished or not
// Measured on 2.4 M and 111 M nodes, ns an insert: stamps 1.9 and 8.2, hash 5.7 and 7.2.
#pragma once

#include <cstdint>

#include "common/fetch.h"
#include "common/huge_array.h"
#include "common/isa.h"

namespace lg {

struct NodeList {
  int64_t* ids;
  int64_t count;
};

// Four bytes for each node of the graph: the number of the batch that met it last, above its local id
// there. So a batch is forgotten by counting, and the array is cleared only when numbers run out.
class StampTable {
 public:
  explicit StampTable(int64_t num_nodes) : stamps_(num_nodes) {}

  void reserve(const NodeList& list, int64_t size) {
    if (size <= int64_t(one_batch_)) return;
    while (size > int64_t(one_batch_)) one_batch_ *= 2;
    start_anew();
    for (int64_t i = 0; i < list.count; ++i) stamps_[list.ids[i]] = batch_ + uint32_t(i);
  }

  // Its fields stay in registers, as members of the table cannot beside stores to its stamps.
  struct InRegisters {
    uint32_t* stamps;
    uint32_t batch, one_batch;

    void prefetch(int64_t node) const { fetch_line(&stamps[node]); }

    // Whether a node is new cannot be predicted, so this is arithmetic and not a branch.
    int32_t insert(int64_t node, NodeList& list) const {
      uint32_t local = stamps[node] - batch;  // earlier batches wrap to large numbers
      list.ids[list.count] = node;
#ifdef LG_X86
      // if (local >= one_batch) local = list.count++, by the carry flag: compilers do not come to it.
      asm("cmp %[one_batch], %[local]\n\t"
          "cmovae %k[count], %[local]\n\t"
          "sbb $-1, %[count]"
          : [local] "+r"(local), [count] "+r"(list.count)
          : [one_batch] "r"(one_batch)
          : "cc");
#else
      const uint32_t is_new = local >= one_batch;
      local = (local & (is_new - 1)) | (uint32_t(list.count) & (0 - is_new));
      list.count += is_new;
#endif
      stamps[node] = batch + local;
      return int32_t(local);
    }
  };
  InRegisters in_registers() { return {stamps_.data(), batch_, one_batch_}; }

  void prefetch(int64_t node) { in_registers().prefetch(node); }
  int32_t insert(int64_t node, NodeList& list) { return in_registers().insert(node, list); }

  int32_t find(int64_t node) const {
    const uint32_t found = stamps_[node] - batch_;
    return found < one_batch_ ? int32_t(found) : -1;
  }

  void clear(const NodeList&) {
    batch_ += one_batch_;
    if (batch_ == 0) start_anew();
  }

 private:
  void start_anew() {
    stamps_.clear();
    batch_ = one_batch_;
  }

  HugeArray<uint32_t> stamps_;
  uint32_t one_batch_ = 1u << 22;  // a power of 2: more than the nodes of a batch
  uint32_t batch_ = one_batch_;    // number of the batch, times one_batch_; 0 is before all
};

// Open addressing with linear probing, at most half full. Memory follows the batch, not the graph.
class HashTable {
 public:
  HashTable() : slots_(kInitialCapacity), mask_(kInitialCapacity - 1) {}

  void reserve(const NodeList&, int64_t) {}  // insert() grows it by what is there, not by a bound

  void prefetch(int64_t node) { fetch_line(&slots_[home(node)]); }

  int32_t insert(int64_t node, NodeList& list) {
    Slot* slot = slot_of(node);
    if (slot->batch == batch_) return slot->local;
    const int32_t local = int32_t(list.count);
    if (2 * (uint64_t(local) + 1) > mask_) {
      grow(list);
      slot = slot_of(node);
    }
    *slot = {node, local, batch_};
    list.ids[list.count++] = node;
    return local;
  }

  HashTable& in_registers() { return *this; }

  int32_t find(int64_t node) {
    const Slot* slot = slot_of(node);
    return slot->batch == batch_ ? slot->local : -1;
  }

  // A slot belongs to the batch whose number it carries, so forgetting is counting.
  void clear(const NodeList&) {
    if (++batch_ != 0) return;
    for (uint64_t i = 0; i <= mask_; ++i) slots_[i].batch = 0;
    batch_ = 1;
  }

 private:
  struct Slot {
    int64_t node;
    int32_t local;
    uint32_t batch;  // 0: never used
  };
  static constexpr uint64_t kInitialCapacity = uint64_t(1) << 16;

  uint64_t home(int64_t node) const {
    const uint64_t mixed = uint64_t(node) * 0x9E3779B97F4A7C15u;  // Fibonacci hashing
    return (mixed >> 32) & mask_;
  }

  // The node's slot, or the free one where it would go.
  Slot* slot_of(int64_t node) {
    uint64_t i = home(node);
    while (slots_[i].batch == batch_ && slots_[i].node != node) i = (i + 1) & mask_;
    return &slots_[i];
  }

  void grow(const NodeList& list) {
    const uint64_t capacity = 2 * (mask_ + 1);
    slots_ = HugeArray<Slot>(capacity);
    mask_ = capacity - 1;
    for (int64_t i = 0; i < list.count; ++i)
      *slot_of(list.ids[i]) = {list.ids[i], int32_t(i), batch_};
  }

  HugeArray<Slot> slots_;
  uint64_t mask_;
  uint32_t batch_ = 1;
};

// local[i] = table.insert(nodes[i], list)
template <class Table, class Node>
void insert_many(Table& table, const Node* nodes, int64_t count, NodeList& list, int32_t* local) {
  auto&& inserter = table.in_registers();
  NodeList known = list;  // in registers, too
  for (int64_t i = 0; i < count; ++i) local[i] = inserter.insert(nodes[i], known);
  list = known;
}

}  // namespace lg
