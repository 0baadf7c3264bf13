// Rows come out part by part, in their order, each with its number there; one bad row or new id, and
// it is named.
#include "locate_rows/locate_rows.h"

#include "fuzz/graphs.h"
#include "fuzz/target.h"

namespace lg::fuzz {

LG_FUZZ_TARGET(locate_rows) {
  const int64_t num_parts = choose.between(1, 40), num_nodes = choose.size(100);
  const bool renumbers = choose.flag();
  const int64_t first = renumbers && num_nodes ? choose.below(num_nodes) : 0;
  const int64_t num_rows = num_nodes - first;
  Exact<int64_t> starts(num_parts + 1), begins(num_parts), new_ids(num_nodes);
  for (int64_t p = 1; p < num_parts; ++p) starts[p] = num_nodes ? choose.below(num_nodes) : 0;
  starts[0] = 0;
  starts[num_parts] = num_nodes;
  std::sort(starts.data(), starts.data() + starts.size());
  for (int64_t p = 0; p < num_parts; ++p) begins[p] = starts[p] + choose.below(3);
  for (int64_t i = 0; i < num_nodes; ++i) new_ids[i] = num_nodes - 1 - i;
  if (num_nodes && renumbers && choose.one_in(8)) {
    new_ids[choose.below(num_nodes)] = bad_id<int64_t>(choose, num_nodes);
  }
  const int64_t count = num_rows ? choose.size(100) : choose.below(2);
  Exact<int64_t> rows(count), counts(num_parts), own_rows(count), positions(count);
  for (int64_t i = 0; i < count && num_rows; ++i) rows[i] = choose.below(num_rows);
  if (count && choose.one_in(8)) rows[choose.below(count)] = bad_id<int64_t>(choose, num_rows);

  Outcome expected = Outcome::kDone;
  for (int64_t i = 0; i < count && expected == Outcome::kDone; ++i) {
    if (!in_range(rows[i], num_rows)) expected = Outcome::kSeedError;
  }
  auto new_id = [&](int64_t i) { return renumbers ? new_ids[first + rows[i]] : rows[i]; };
  for (int64_t i = 0; i < count && expected == Outcome::kDone; ++i) {
    if (!in_range(new_id(i), num_nodes)) expected = Outcome::kGraphFormatError;
  }
  const PartPlaces places{renumbers ? new_ids.data() : nullptr, first, starts.data(), begins.data(),
                          num_parts};
  const Outcome outcome = outcome_of([&] {
    locate_rows(rows.data(), count, num_rows, places, counts.data(), own_rows.data(),
                positions.data());
  });
  expect(outcome == expected, "an outcome of ", outcome, " and not ", expected);
  if (outcome != Outcome::kDone) return;
  int64_t at = 0;
  for (int64_t p = 0; p < num_parts; ++p) {
    const int64_t end = at + counts[p];
    for (int64_t i = 0; i < count; ++i) {
      if (new_id(i) < starts[p] || new_id(i) >= starts[p + 1]) continue;
      expect(at < end && positions[at] == i && own_rows[at] == new_id(i) - begins[p], "row ", i,
             " of part ", p);
      ++at;
    }
    expect(at == end, "part ", p, " has ", counts[p], " rows");
  }
}

}  // namespace lg::fuzz
