#include "dynamic_cache/dynamic_cache.h"

#include <atomic>

#include "common/workspace.h"
#include "gather_rows/check_ids.h"
#include "gather_rows/gather_rows.h"
#include "gather_tiered/gather_tiered.h"

namespace lg {
namespace {

constexpr int64_t kAhead = 32;  // entries that are fetched before their use

}  // namespace

int64_t CacheShape::block_bytes() const {
  TableBlock block(nullptr);
  block.state<DynamicCache::State>();
  block.table<uint8_t>(num_slots * row_bytes);
  Evictor(block, num_nodes, num_slots, eviction);
  return block.size();
}

DynamicCache::DynamicCache(const CacheShape& shape, uint8_t* memory)
    : num_nodes_(shape.num_nodes),
      num_slots_(shape.num_slots),
      row_bytes_(shape.row_bytes),
      own_(memory == nullptr ? size_t(shape.block_bytes()) : 0),
      block_(memory == nullptr ? own_.data() : memory),
      state_(block_.state<State>()),
      rows_(block_.table<uint8_t>(num_slots_ * row_bytes_)),
      evictor_(block_, num_nodes_, num_slots_, shape.eviction) {}

bool DynamicCache::is_whole() const {
  return __atomic_load_n(&state_->is_whole, __ATOMIC_ACQUIRE) != 0;
}

void DynamicCache::begin_admission() {
  if (!is_whole()) evictor_.clear();
  __atomic_store_n(&state_->is_whole, int64_t(0), __ATOMIC_RELAXED);
  // The compiler must move nothing that follows to before, as who is killed stops between instructions.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void DynamicCache::end_admission() {
  __atomic_store_n(&state_->is_whole, int64_t(1), __ATOMIC_RELEASE);
}

std::shared_lock<std::shared_mutex> DynamicCache::to_read() {
  const std::lock_guard<std::mutex> turn(turn_);
  return std::shared_lock<std::shared_mutex>(rows_in_use_);
}

std::unique_lock<std::shared_mutex> DynamicCache::to_admit() {
  const std::lock_guard<std::mutex> turn(turn_);
  return std::unique_lock<std::shared_mutex>(rows_in_use_);
}

int64_t DynamicCache::read(const CacheRequest& batch, int64_t* missed_ids,
                           int64_t* missed_positions) {
  const auto lock = to_read();
  if (!is_whole()) {
    check_ids(batch.ids, batch.count, num_nodes_);
    check_positions(batch.positions, batch.count, batch.num_out);
    for (int64_t i = 0; i < batch.count; ++i) {
      missed_ids[i] = batch.ids[i];
      missed_positions[i] = batch.positions ? batch.positions[i] : i;
    }
    return 0;
  }
  const TieredRequest request{evictor_.slot_of(),
                              num_nodes_,
                              {{{rows_, num_slots_}}},
                              nullptr,
                              row_bytes_,
                              batch.ids,
                              batch.positions,
                              batch.count,
                              batch.out,
                              batch.num_out,
                              missed_ids,
                              missed_positions};
  const int64_t hits = gather_tiered(request).hits[0];
  if (evictor_.counts_visits()) {
    for (int64_t i = 0; i < batch.count; ++i) {
      if (i + kAhead < batch.count) evictor_.prefetch(batch.ids[i + kAhead]);
      evictor_.visit(batch.ids[i]);
    }
  }
  return hits;
}

void DynamicCache::admit(const CacheRequest& missed) {
  check_ids(missed.ids, missed.count, num_nodes_);
  check_positions(missed.positions, missed.count, missed.num_out);
  const auto lock = to_admit();
  int64_t* const slots = reserve(slots_, missed.count);
  int64_t* const positions = reserve(positions_, missed.count);
  begin_admission();
  // Nothing from here on may fail: a node with a slot must have its row there.
  int64_t num_admitted = 0;
  for (int64_t i = 0; i < missed.count; ++i) {
    if (i + kAhead < missed.count) evictor_.prefetch(missed.ids[i + kAhead]);
    if (evictor_.slot_of()[missed.ids[i]] >= 0) continue;
    slots[num_admitted] = evictor_.admit(missed.ids[i]);
    positions[num_admitted++] = i;
  }
  // A batch of more misses than slots evicts some that it admitted itself.
  int64_t num_kept = 0;
  for (int64_t i = 0; i < num_admitted; ++i) {
    const int64_t from = positions[i];
    if (evictor_.node_of(slots[i]) != missed.ids[from]) continue;
    slots[num_kept] = slots[i];
    positions[num_kept++] = missed.positions ? missed.positions[from] : from;
  }
  gather_rows(missed.out, missed.num_out, row_bytes_, positions, slots, num_kept, rows_,
              num_slots_);
  end_admission();
}

int64_t DynamicCache::visit(const int64_t* ids, int64_t count) {
  check_ids(ids, count, num_nodes_);
  const auto lock = to_admit();
  int64_t* const missed = reserve(positions_, count);
  begin_admission();
  int64_t num_missed = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) evictor_.prefetch(ids[i + kAhead]);
    missed[num_missed] = ids[i];
    num_missed += !evictor_.visit(ids[i]);
  }
  for (int64_t i = 0; i < num_missed; ++i) {
    if (i + kAhead < num_missed) evictor_.prefetch(missed[i + kAhead]);
    if (evictor_.slot_of()[missed[i]] < 0) evictor_.admit(missed[i]);
  }
  end_admission();
  return count - num_missed;
}

void DynamicCache::contains(const int64_t* ids, int64_t count, uint8_t* has) {
  check_ids(ids, count, num_nodes_);
  const auto lock = to_read();
  for (int64_t i = 0; i < count; ++i) has[i] = is_whole() && evictor_.slot_of()[ids[i]] >= 0;
}

}  // namespace lg
