#include "gather_tiered/gather_tiered.h"

#include "common/error.h"
#include "common/fetch.h"
#include "gather_rows/check_ids.h"
#include "gather_rows/copy_rows.h"

namespace lg {
namespace {

constexpr int64_t kSlotMask = (1 << kSlotBits) - 1;
constexpr int64_t kLocationsAhead = 64;  // before a row is sought, its location has to be here

[[noreturn, gnu::cold, gnu::noinline]] void fail_location(int64_t id, uint32_t shard, int64_t slot,
                                                          int64_t num_slots) {
  fail<CacheShareError>("the cache says that the row of node ", id, " is in slot ", slot,
                        " of shard ", shard, ", which has ", num_slots,
                        " slots: its table of locations is damaged, or belongs to other shards.");
}

// What a walk over the rows notes besides the output. By the upper bits of a location, which say who
// holds the row: of negative ones, all nodes' rows, if anyone.
struct Notes {
  static constexpr int kHolders = 2 * kMaxShards;

  explicit Notes(const TieredRequest& request) {
    for (int h = 0; h < kHolders; ++h) {
      holders[h] =
          h < kMaxShards ? request.shards[size_t(h)] : Shard{request.backing, request.num_nodes};
    }
  }

  Taken total() const {
    Taken total{};
    for (int h = 0; h < kHolders; ++h) {
      (h < kMaxShards ? total.hits[size_t(h)] : total.misses) += taken[h];
    }
    return total;
  }

  Shard holders[kHolders];
  int64_t taken[kHolders]{};
  const uint8_t* found[2 * kMostAhead];  // rows sought and not yet taken
};

// With a backing, hits and misses are the same to this loop: a branch on what alternates at random
// would be foretold wrongly every other time.
template <bool kBacked>
struct TieredRows {
  TieredRequest request;
  Notes* notes;
  int64_t misses = 0;

  LG_ALWAYS_INLINE int64_t row_bytes() const { return request.row_bytes; }

  LG_ALWAYS_INLINE void seek(int64_t i) {
    if (i + kLocationsAhead < request.count) {
      fetch_line(request.location + request.ids[i + kLocationsAhead]);
    }
    const uint8_t* row = find(i);
    notes->found[i % (2 * kMostAhead)] = row;
    if (kBacked || row != nullptr) prefetch_row(row, request.row_bytes);
  }

  LG_ALWAYS_INLINE const uint8_t* take(int64_t i) const {
    return notes->found[i % (2 * kMostAhead)];
  }

  LG_ALWAYS_INLINE int64_t position(int64_t i) const {
    return request.positions ? request.positions[i] : i;
  }

 private:
  LG_ALWAYS_INLINE const uint8_t* find(int64_t i) {
    const int64_t id = request.ids[i];
    // Another process may write to the table: the number that is checked is the number that is used.
    const int32_t location = __atomic_load_n(request.location + id, __ATOMIC_RELAXED);
    const uint32_t holder = uint32_t(location) >> kSlotBits;
    ++notes->taken[holder];
    if (!kBacked && location < 0) {
      request.missed_ids[misses] = id;
      request.missed_positions[misses++] = position(i);
      return nullptr;
    }
    const int64_t slot = location < 0 ? id : int64_t(location) & kSlotMask;
    const Shard& from = notes->holders[holder];
    if (slot >= from.num_rows) fail_location(id, holder, slot, from.num_rows);
    return from.rows + slot * request.row_bytes;
  }
};

}  // namespace

Taken gather_tiered(const TieredRequest& request) {
  check_ids(request.ids, request.count, request.num_nodes);
  check_positions(request.positions, request.count, request.num_out);
  Notes notes(request);
  const Output out{request.out, request.num_out, request.row_bytes};
  if (request.backing != nullptr) {
    copy_rows(TieredRows<true>{request, &notes}, request.count, out);
  } else {
    copy_rows(TieredRows<false>{request, &notes}, request.count, out);
  }
  return notes.total();
}

}  // namespace lg
