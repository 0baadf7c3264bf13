#include "dynamic_cache/evictor.h"

#include <algorithm>

#include "common/fetch.h"

namespace lg {
namespace {

constexpr int32_t kNone = -1;

}  // namespace

int64_t Eviction::slot_bytes() const {
  const int64_t small = has_small_queue ? sizeof(int32_t) + sizeof(int64_t) : 0;
  return int64_t(sizeof(int64_t) + sizeof(int32_t)) + (most_visits > 0) + small;
}

Evictor::Evictor(TableBlock& block, int64_t num_nodes, int64_t num_slots, const Eviction& eviction)
    : num_nodes_(num_nodes),
      num_slots_(num_slots),
      small_slots_(eviction.has_small_queue ? std::max<int64_t>(num_slots / 10, 1) : 0),
      main_slots_(num_slots - small_slots_),
      most_visits_(eviction.most_visits),
      state_(block.state<State>()),
      slot_of_(block.table<int32_t>(num_nodes)),
      node_of_(block.table<int64_t>(num_slots)),
      visits_(block.table<uint8_t>(most_visits_ > 0 ? num_slots : 0)),
      small_(block, small_slots_ > 0 ? num_slots : 0),
      main_(block, num_slots),
      remembered_(block.table<int64_t>(small_slots_ > 0 ? main_slots_ : 0)) {}

void Evictor::clear() {
  *state_ = {};
  small_.clear();
  main_.clear();
  std::fill_n(slot_of_, num_nodes_, kNone);
  if (small_slots_ > 0) std::fill_n(remembered_, main_slots_, int64_t(-1));
}

int32_t Evictor::admit(int64_t node) {
  // Decided first: making room may push the node's own memory out.
  const bool known = slot_of_[node] < kNone;
  const int32_t slot = free_slot();
  slot_of_[node] = slot;
  node_of_[slot] = node;
  if (most_visits_ > 0) visits_[slot] = 0;
  (small_slots_ > 0 && !known ? small_ : main_).push(slot);
  return slot;
}

int32_t Evictor::free_slot() {
  if (state_->num_given < num_slots_) return int32_t(state_->num_given++);
  prefetch_evicted();
  while (small_.size() > 0 && main_.size() <= main_slots_) {
    const int32_t slot = small_.pop();
    if (visits_[slot] < 2) {
      remember(node_of_[slot]);
      return slot;
    }
    visits_[slot] = 0;
    main_.push(slot);
  }
  return evict_from_main();
}

int32_t Evictor::evict_from_main() {
  for (;;) {
    const int32_t slot = main_.pop();
    if (most_visits_ == 0 || visits_[slot] == 0) {
      slot_of_[node_of_[slot]] = kNone;
      return slot;
    }
    --visits_[slot];
    main_.push(slot);
  }
}

void Evictor::remember(int64_t node) {
  slot_of_[node] = kNone;
  if (main_slots_ == 0) return;
  const int32_t mark = int32_t(-2 - state_->next_remembered);
  int64_t& place = remembered_[state_->next_remembered];
  // Who was remembered here may have come again since, and may even be remembered elsewhere by now.
  if (place >= 0 && slot_of_[place] == mark) slot_of_[place] = kNone;
  place = node;
  slot_of_[node] = mark;
  state_->next_remembered =
      state_->next_remembered + 1 < main_slots_ ? state_->next_remembered + 1 : 0;
}

// Who goes some admissions later: its tables are far apart, and each leads to the next.
void Evictor::prefetch_evicted() const {
  constexpr int64_t kAhead = 16;
  for (const SlotQueue* queue : {&small_, &main_}) {
    if (queue->size() <= 2 * kAhead) continue;
    const int32_t slot = queue->peek(2 * kAhead);
    fetch_line(&node_of_[slot]);
    if (most_visits_ > 0) fetch_line(&visits_[slot]);
    prefetch(node_of_[queue->peek(kAhead)]);
  }
  const int64_t forgotten = state_->next_remembered + kAhead;
  if (small_slots_ == 0 || forgotten >= main_slots_) return;
  const int64_t node = remembered_[forgotten];
  if (node >= 0) prefetch(node);
}

}  // namespace lg
