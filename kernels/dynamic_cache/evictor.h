// evictor.h: which node has which slot, when whoever is missed gets one and another node goes for it.
//
// A node waits in a queue. Who is oldest there goes, unless visits since it came, or since it was last
// spared, spare it. One body serves all rules:
//   FIFO     one queue; visits spare nobody. BGL (NSDI'23), section 3.2.1.
//   CLOCK    one queue; visited once or more, a node is spared once. Corbato, "A paging experiment
//            with the Multics system", 1968.
//   S3-FIFO  who is new waits in a small queue, of a tenth of the slots. Visited twice, it moves on to
//            the main queue, without its visits; else it goes, but is remembered until as many others
//            as the main queue has slots have gone that way. Who comes again while remembered joins
//            the main queue at once, where up to three visits spare a node as often. Yang et al.,
//            "FIFO queues are all you need for cache eviction" (SOSP'23), section 4.
//
// Its tables lie in a block of memory. Nothing here is locked: visit() may run beside itself, admit()
// and clear() alone.
#pragma once

#include <cstdint>

#include "common/fetch.h"
#include "dynamic_cache/slot_queue.h"
#include "dynamic_cache/table_block.h"

namespace lg {

// What tells one rule from another.
struct Eviction {
  const char* name;
  uint8_t most_visits;  // that are counted of a node
  bool has_small_queue;

  // At most what a slot takes beside its row.
  int64_t slot_bytes() const;
};

// A rule more is a row more, and one of the same name in cache/rules.py.
inline constexpr Eviction kEvictions[] = {
    {"fifo", 0, false},
    {"clock", 1, false},
    {"s3fifo", 3, true},
};

class Evictor {
 public:
  // clear() must come before anything else.
  Evictor(TableBlock& block, int64_t num_nodes, int64_t num_slots, const Eviction& eviction);

  // No node has a slot.
  void clear();

  // int32 [num_nodes]: each node's slot; negative: it has none.
  const int32_t* slot_of() const { return slot_of_; }

  // The node that has a slot, which was given.
  int64_t node_of(int64_t slot) const { return node_of_[slot]; }

  bool counts_visits() const { return most_visits_ > 0; }

  // Counts a visit, if the node has a slot: whether it has.
  bool visit(int64_t node) {
    const int32_t slot = slot_of_[node];
    if (slot < 0) return false;
    if (most_visits_ == 0) return true;
    // Threads that visit a slot at once may count one visit for two: never more than there can be.
    uint8_t* visits = visits_ + slot;
    const uint8_t counted = __atomic_load_n(visits, __ATOMIC_RELAXED);
    if (counted < most_visits_) __atomic_store_n(visits, counted + 1, __ATOMIC_RELAXED);
    return true;
  }

  // Gives the node, which has none, a slot.
  int32_t admit(int64_t node);

  void prefetch(int64_t node) const { fetch_line(slot_of_ + node); }

 private:
  struct State {
    int64_t num_given, next_remembered;
  };

  int32_t free_slot();
  int32_t evict_from_main();
  void prefetch_evicted() const;
  void remember(int64_t node);

  int64_t num_nodes_, num_slots_;
  int64_t small_slots_;  // of the small queue; 0: there is none
  int64_t main_slots_;
  uint8_t most_visits_;  // that are counted of a node

  State* state_;
  // Below -1: the node is remembered at -2 - slot_of[node] of remembered_.
  int32_t* slot_of_;
  int64_t* node_of_;
  uint8_t* visits_;
  SlotQueue small_, main_;
  int64_t* remembered_;  // a ring; -1: nobody yet
};

}  // namespace lg
