// Rows come out as their shard or the backing holds them, at their positions and nowhere else; a bad
// id or position writes nothing, a bad location nothing that is wrong.
#include "gather_tiered/gather_tiered.h"

#include <optional>

#include "fuzz/graphs.h"
#include "fuzz/target.h"
#include "gather_rows/gather_rows.h"

namespace lg::fuzz {
namespace {

constexpr uint8_t kUntouched = 0xA5;

Exact<uint8_t> some_rows(int64_t num_bytes, int64_t salt) {
  Exact<uint8_t> rows(num_bytes);
  for (int64_t i = 0; i < num_bytes; ++i) rows[i] = uint8_t((i + salt) * 167 >> 3);
  return rows;
}

// Each position once, so that what every row of the output must hold is known.
std::vector<int64_t> distinct_positions(Choices& choose, int64_t num_out) {
  std::vector<int64_t> all(static_cast<size_t>(num_out));
  for (int64_t i = 0; i < num_out; ++i) {
    const int64_t j = choose.below(i + 1);
    all[size_t(i)] = all[size_t(j)];
    all[size_t(j)] = i;
  }
  return all;
}

}  // namespace

LG_FUZZ_TARGET(gather_tiered) {
  const bool streams = choose.one_in(2000);  // output so large that it goes past the caches
  const int64_t num_nodes = streams ? choose.between(1, 80) : choose.size(80);
  const int64_t row_bytes = streams         ? choose.between(3000, 9000)
                            : choose.flag() ? choose.one_of<int64_t>({0, 1, 4, 8, 64, 512})
                                            : choose.size(600);
  const int64_t count = num_nodes == 0 ? 0 : choose.size(300);
  const bool placed = streams || choose.flag();
  const int64_t num_out = streams  ? std::max(count, kStreamBytes / row_bytes + choose.below(3))
                          : placed ? count + choose.size(30)
                                   : count;
  const int64_t out_start = choose.flag() ? 0 : choose.below(64);

  TieredRequest request{};
  std::vector<Exact<uint8_t>> shards;
  const int num_shards = int(choose.below(kMaxShards + 1));
  for (int s = 0; s < num_shards; ++s) {
    const int64_t num_rows = choose.size(20);
    shards.push_back(some_rows(num_rows * row_bytes, s));
    request.shards[size_t(s)] = {shards.back().data(), num_rows};
  }
  Exact<int32_t> location(num_nodes, -1);
  for (int64_t node = 0; node < num_nodes; ++node) {
    if (num_shards == 0 || choose.flag()) {
      location[node] = -int32_t(1 + choose.size(1 << 30));
      continue;
    }
    const int64_t shard = choose.below(num_shards), slots = request.shards[size_t(shard)].num_rows;
    if (slots > 0) location[node] = int32_t(shard << kSlotBits | choose.below(slots));
  }
  if (num_nodes && choose.one_in(8)) location[choose.below(num_nodes)] = int32_t(choose.word());

  const Exact<uint8_t> backing = some_rows(num_nodes * row_bytes, 99);
  Exact<int64_t> ids(count), positions(distinct_positions(choose, num_out));
  for (int64_t i = 0; i < count; ++i) ids[i] = choose.below(num_nodes);
  if (count && choose.one_in(8)) ids[choose.below(count)] = bad_id<int64_t>(choose, num_nodes);
  if (count && choose.one_in(8)) positions[choose.below(count)] = bad_id<int64_t>(choose, num_out);
  Exact<int64_t> missed_ids(count), missed_positions(count);
  Exact<uint8_t> out(out_start + num_out * row_bytes, kUntouched);

  request.location = location.data();
  request.num_nodes = num_nodes;
  request.backing = choose.flag() ? backing.data() : nullptr;
  request.row_bytes = row_bytes;
  request.ids = ids.data();
  request.positions = placed ? positions.data() : nullptr;
  request.count = count;
  request.out = out.data() + out_start;
  request.num_out = num_out;
  request.missed_ids = missed_ids.data();
  request.missed_positions = missed_positions.data();

  const auto position = [&](int64_t i) { return placed ? positions[i] : i; };
  bool sound = true, located = true;
  for (int64_t i = 0; i < count; ++i) {
    sound = sound && in_range(ids[i], num_nodes) && in_range(position(i), num_out);
  }
  // Where each row of the output should come from; nullptr: it is left alone.
  std::vector<const uint8_t*> wanted(size_t(num_out), nullptr);
  Taken taken{};
  for (int64_t i = 0; i < count && sound && located; ++i) {
    const int32_t place = location[ids[i]];
    const uint8_t* row = nullptr;
    if (place < 0) {
      if (request.backing) row = request.backing + ids[i] * row_bytes;
      ++taken.misses;
    } else {
      const Shard& shard = request.shards[size_t(place >> kSlotBits)];
      const int64_t slot = place & ((1 << kSlotBits) - 1);
      located = slot < shard.num_rows;
      row = shard.rows + (located ? slot * row_bytes : 0);
      ++taken.hits[size_t(place >> kSlotBits)];
    }
    wanted[size_t(position(i))] = row;
  }

  std::optional<Taken> got;
  const Outcome outcome = outcome_of([&] { got = gather_tiered(request); });
  const Outcome due = !sound     ? Outcome::kSeedError
                      : !located ? Outcome::kCacheShareError
                                 : Outcome::kDone;
  expect(outcome == due, outcome, " and not ", due);
  for (int64_t i = 0; i < out_start; ++i) {
    expect(out[i] == kUntouched, "byte ", i - out_start, " was written to");
  }
  if (outcome == Outcome::kCacheShareError) return;
  for (int64_t i = 0; i < num_out; ++i) {
    const uint8_t* row = request.out + i * row_bytes;
    const bool right =
        sound && wanted[size_t(i)]
            ? std::equal(row, row + row_bytes, wanted[size_t(i)])
            : std::all_of(row, row + row_bytes, [](uint8_t b) { return b == kUntouched; });
    expect(right, "row ", i, " of ", row_bytes, " bytes");
  }
  if (!sound) return;
  expect(got->misses == taken.misses, got->misses, " misses and not ", taken.misses);
  for (int s = 0; s < kMaxShards; ++s) {
    expect(got->hits[size_t(s)] == taken.hits[size_t(s)], "hits of shard ", s);
  }
  int64_t missed = 0;
  for (int64_t i = 0; i < count && !request.backing; ++i) {
    if (location[ids[i]] >= 0) continue;
    expect(missed_ids[missed] == ids[i] && missed_positions[missed] == position(i), "miss ",
           missed);
    ++missed;
  }
}

}  // namespace lg::fuzz
