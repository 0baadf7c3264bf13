#include "dynamic_cache/dynamic_cache.h"

#include "common/workspace.h"
#include "gather_rows/check_ids.h"
#include "gather_rows/gather_rows.h"
#include "gather_tiered/gather_tiered.h"

namespace lg {
namespace {

constexpr int64_t kAhead = 32;  // entries that are fetched before their use

}  // namespace

DynamicCache::DynamicCache(int64_t num_nodes, int64_t num_slots, int64_t row_bytes,
                           const Eviction& eviction)
    : num_nodes_(num_nodes),
      num_slots_(num_slots),
      row_bytes_(row_bytes),
      evictor_(num_nodes, num_slots, eviction),
      rows_(size_t(num_slots * row_bytes)) {}

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
  const TieredRequest request{evictor_.slot_of(),
                              num_nodes_,
                              {{{rows_.data(), num_slots_}}},
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
  // Nothing after this may fail: a node with a slot must have its row there.
  int64_t* const slots = reserve(slots_, missed.count);
  int64_t* const positions = reserve(positions_, missed.count);
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
  gather_rows(missed.out, missed.num_out, row_bytes_, positions, slots, num_kept, rows_.data(),
              num_slots_);
}

int64_t DynamicCache::visit(const int64_t* ids, int64_t count) {
  check_ids(ids, count, num_nodes_);
  const auto lock = to_admit();
  int64_t* const missed = reserve(positions_, count);
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
  return count - num_missed;
}

void DynamicCache::contains(const int64_t* ids, int64_t count, uint8_t* has) {
  check_ids(ids, count, num_nodes_);
  const auto lock = to_read();
  for (int64_t i = 0; i < count; ++i) has[i] = evictor_.slot_of()[ids[i]] >= 0;
}

int64_t DynamicCache::num_bytes() const { return evictor_.num_bytes() + num_slots_ * row_bytes_; }

}  // namespace lg
