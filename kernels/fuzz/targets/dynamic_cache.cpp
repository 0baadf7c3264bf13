// Whatever the rule and the batches, a row that is read is its node's, all others are told as missed, no
// more nodes are there than slots, and everyone who was asked for last is there if all have room.
#include "dynamic_cache/dynamic_cache.h"

#include <iterator>

#include "fuzz/graphs.h"
#include "fuzz/target.h"

namespace lg::fuzz {
namespace {

constexpr uint8_t kUntouched = 0xA5;

uint8_t byte_of(int64_t node, int64_t byte) { return uint8_t(node * 31 + byte * 7); }

void expect_row(const Exact<uint8_t>& out, int64_t position, int64_t row_bytes, int64_t node) {
  for (int64_t byte = 0; byte < row_bytes; ++byte) {
    expect(out[position * row_bytes + byte] == byte_of(node, byte), "byte ", byte, " of node ",
           node);
  }
}

// One batch as a gather does it; a bad id or position is refused by both halves.
void request_batch(Choices& choose, DynamicCache& cache, int64_t num_nodes, int64_t num_slots,
                   int64_t row_bytes) {
  const int64_t count = num_nodes == 0 ? choose.below(2) : choose.size(60);
  const int64_t num_out = count + choose.size(4);
  const int64_t shift = num_out - count;
  const bool placed = shift > 0 || choose.flag();
  Exact<int64_t> ids(count), positions(count), missed_ids(count), missed_positions(count);
  for (int64_t i = 0; i < count; ++i) {
    ids[i] = num_nodes > 0 ? choose.size(num_nodes - 1) : 0;
    positions[i] = num_out - 1 - i;
  }
  if (count && choose.one_in(8)) ids[choose.below(count)] = bad_id<int64_t>(choose, num_nodes);
  if (count && choose.one_in(8)) positions[choose.below(count)] = bad_id<int64_t>(choose, num_out);
  const auto position = [&](int64_t i) { return placed ? positions[i] : i; };
  bool sound = true;
  for (int64_t i = 0; i < count; ++i) {
    sound = sound && in_range(ids[i], num_nodes) && in_range(position(i), num_out);
  }
  const Outcome due = sound ? Outcome::kDone : Outcome::kSeedError;
  Exact<uint8_t> out(num_out * row_bytes, kUntouched);
  const int64_t* const places = placed ? positions.data() : nullptr;
  int64_t hits = 0;
  const CacheRequest batch{ids.data(), places, count, out.data(), num_out};
  Outcome outcome =
      outcome_of([&] { hits = cache.read(batch, missed_ids.data(), missed_positions.data()); });
  expect(outcome == due, "read: ", outcome, " and not ", due);
  if (!sound) {
    outcome = outcome_of([&] { cache.admit(batch); });
    expect(outcome == due, "admit: ", outcome, " and not ", due);
    return;
  }

  int64_t missed = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (missed < count - hits && missed_ids[missed] == ids[i] &&
        missed_positions[missed] == position(i)) {
      ++missed;
      for (int64_t byte = 0; byte < row_bytes; ++byte) {
        uint8_t& place = out[position(i) * row_bytes + byte];
        expect(place == kUntouched, "the place of a missed row was written to");
        place = byte_of(ids[i], byte);
      }
    } else {
      expect_row(out, position(i), row_bytes, ids[i]);
    }
  }
  expect(missed == count - hits, missed, " misses of ", count, " ids with ", hits, " hits");
  cache.admit({missed_ids.data(), missed_positions.data(), missed, out.data(), num_out});

  Exact<int64_t> all(num_nodes);
  for (int64_t node = 0; node < num_nodes; ++node) all[node] = node;
  Exact<uint8_t> has(num_nodes);
  cache.contains(all.data(), num_nodes, has.data());
  const int64_t num_held = std::count(has.begin(), has.end(), uint8_t(1));
  expect(num_held <= num_slots, num_held, " nodes in ", num_slots, " slots");
  for (int64_t i = 0; i < count && num_slots >= num_nodes; ++i) {
    expect(has[ids[i]], "node ", ids[i], " is gone, though all have room");
  }
}

}  // namespace

LG_FUZZ_TARGET(dynamic_cache) {
  const int64_t num_nodes = choose.size(80);
  const int64_t num_slots = choose.between(1, 100);
  const int64_t row_bytes =
      choose.flag() ? choose.one_of<int64_t>({0, 1, 4, 8, 64}) : choose.size(200);
  const Eviction& eviction = kEvictions[choose.below(int64_t(std::size(kEvictions)))];
  DynamicCache cache({num_nodes, num_slots, row_bytes, eviction});
  DynamicCache simulated({num_nodes, num_slots, 0, eviction});
  for (int64_t batches = choose.size(12); batches > 0; --batches) {
    request_batch(choose, cache, num_nodes, num_slots, row_bytes);
    Exact<int64_t> ids(num_nodes == 0 ? 0 : choose.size(60));
    for (int64_t i = 0; i < ids.size(); ++i) ids[i] = choose.below(num_nodes);
    const int64_t hits = simulated.visit(ids.data(), ids.size());
    expect(hits >= 0 && hits <= ids.size(), hits, " hits of ", ids.size());
  }
}

}  // namespace lg::fuzz
