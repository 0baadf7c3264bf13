#include "gather_tiered/gather_tiered.h"

#include "common/error.h"
#include "gather_rows/check_ids.h"
#include "gather_rows/copy_rows.h"

namespace lg {
namespace {

constexpr uint32_t kSlotMask = (1u << kSlotBits) - 1;
constexpr int64_t kLocationsAhead = 64;  // before a row is sought, its location has to be here

// What a walk over the rows writes to besides the output.
struct Log {
  const uint8_t* found[2 * kMostAhead];  // rows sought and not yet taken
  Taken taken;
};

struct TieredRows {
  const TieredRequest* request;
  Log* log;

  void seek(int64_t i) const {
    const TieredRequest& r = *request;
    if (i + kLocationsAhead < r.count) __builtin_prefetch(r.location + r.ids[i + kLocationsAhead]);
    const uint8_t* row = find(i);
    log->found[i % (2 * kMostAhead)] = row;
    if (row != nullptr) prefetch_row(row, r.row_bytes);
  }

  const uint8_t* take(int64_t i) const { return log->found[i % (2 * kMostAhead)]; }

  int64_t position(int64_t i) const { return request->positions ? request->positions[i] : i; }

 private:
  const uint8_t* find(int64_t i) const {
    const TieredRequest& r = *request;
    const int64_t id = r.ids[i];
    // Another process may write to the table: the number that is checked is the number that is used.
    const int32_t location = __atomic_load_n(r.location + id, __ATOMIC_RELAXED);
    if (location < 0) {
      const int64_t misses = log->taken.misses++;
      if (r.backing != nullptr) return r.backing + id * r.row_bytes;
      r.missed_ids[misses] = id;
      r.missed_positions[misses] = position(i);
      return nullptr;
    }
    const uint32_t shard = uint32_t(location) >> kSlotBits, slot = uint32_t(location) & kSlotMask;
    if (slot >= r.shards[shard].num_rows) {
      fail<CacheShareError>(
          "the cache says that the row of node ", id, " is in slot ", slot, " of shard ", shard,
          ", which has ", r.shards[shard].num_rows,
          " slots: its table of locations is damaged, or belongs to other shards.");
    }
    ++log->taken.hits[shard];
    return r.shards[shard].rows + slot * r.row_bytes;
  }
};

}  // namespace

Taken gather_tiered(const TieredRequest& request) {
  check_ids(request.ids, request.count, request.num_nodes);
  check_positions(request.positions, request.count, request.num_out);
  Log log{};
  copy_rows(TieredRows{&request, &log}, request.count,
            {request.out, request.num_out, request.row_bytes});
  return log.taken;
}

}  // namespace lg
