#include "gather_tiered/gather_tiered.h"

#include "common/error.h"
#include "gather_rows/check_ids.h"
#include "gather_rows/copy_rows.h"

namespace lg {
namespace {

constexpr uint32_t kSlotMask = (1u << kSlotBits) - 1;
constexpr int64_t kLocationsAhead = 64;  // before a row is sought, its location has to be here

[[noreturn, gnu::cold, gnu::noinline]] void fail_location(int64_t id, uint32_t shard, uint32_t slot,
                                                          int64_t num_slots) {
  fail<CacheShareError>("the cache says that the row of node ", id, " is in slot ", slot,
                        " of shard ", shard, ", which has ", num_slots,
                        " slots: its table of locations is damaged, or belongs to other shards.");
}

// What a walk over the rows notes besides the output.
struct Notes {
  const uint8_t* found[2 * kMostAhead];  // rows sought and not yet taken
  Taken taken;
};

struct TieredRows {
  TieredRequest request;
  Notes* notes;

  LG_ALWAYS_INLINE int64_t row_bytes() const { return request.row_bytes; }

  LG_ALWAYS_INLINE void seek(int64_t i) const {
    if (i + kLocationsAhead < request.count) {
      __builtin_prefetch(request.location + request.ids[i + kLocationsAhead]);
    }
    const uint8_t* row = find(i);
    notes->found[i % (2 * kMostAhead)] = row;
    if (row != nullptr) prefetch_row(row, request.row_bytes);
  }

  LG_ALWAYS_INLINE const uint8_t* take(int64_t i) const {
    return notes->found[i % (2 * kMostAhead)];
  }

  LG_ALWAYS_INLINE int64_t position(int64_t i) const {
    return request.positions ? request.positions[i] : i;
  }

 private:
  LG_ALWAYS_INLINE const uint8_t* find(int64_t i) const {
    const int64_t id = request.ids[i];
    // Another process may write to the table: the number that is checked is the number that is used.
    const int32_t location = __atomic_load_n(request.location + id, __ATOMIC_RELAXED);
    if (location < 0) return miss(i);
    const uint32_t shard = uint32_t(location) >> kSlotBits, slot = uint32_t(location) & kSlotMask;
    const Shard& holder = request.shards[shard];
    if (slot >= holder.num_rows) fail_location(id, shard, slot, holder.num_rows);
    ++notes->taken.hits[shard];
    return holder.rows + slot * request.row_bytes;
  }

  LG_ALWAYS_INLINE const uint8_t* miss(int64_t i) const {
    const int64_t id = request.ids[i], misses = notes->taken.misses++;
    if (request.backing != nullptr) return request.backing + id * request.row_bytes;
    request.missed_ids[misses] = id;
    request.missed_positions[misses] = position(i);
    return nullptr;
  }
};

}  // namespace

Taken gather_tiered(const TieredRequest& request) {
  check_ids(request.ids, request.count, request.num_nodes);
  check_positions(request.positions, request.count, request.num_out);
  Notes notes{};
  copy_rows(TieredRows{request, &notes}, request.count,
            {request.out, request.num_out, request.row_bytes});
  return notes.taken;
}

}  // namespace lg
