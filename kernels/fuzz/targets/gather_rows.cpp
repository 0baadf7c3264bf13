// Rows of any size, wherever they start, come out as they stand in the table; one bad id, and
// nothing is written.
#include "gather_rows/gather_rows.h"

#include "fuzz/graphs.h"
#include "fuzz/target.h"

namespace lg::fuzz {

LG_FUZZ_TARGET(gather_rows) {
  constexpr uint8_t kUntouched = 0xA5;
  const bool streams = choose.one_in(4000);  // output so large that it goes past the caches
  const int64_t num_rows = streams ? choose.between(1, 80) : choose.size(80);
  const int64_t row_bytes = streams         ? choose.between(3000, 9000)
                            : choose.flag() ? choose.one_of<int64_t>({0, 1, 2, 4, 8, 16, 64, 512})
                                            : choose.size(600);
  const int64_t count = streams         ? kStreamBytes / row_bytes + choose.below(3)
                        : num_rows == 0 ? choose.below(2)
                                        : choose.size(80);
  const int64_t table_start = choose.below(64), out_start = choose.flag() ? 0 : choose.below(64);
  Exact<uint8_t> table(table_start + num_rows * row_bytes);
  Exact<uint8_t> out(out_start + count * row_bytes, kUntouched);
  for (int64_t i = 0; i < table.size(); ++i) table[i] = uint8_t(i * 167 >> 3);
  Exact<int64_t> ids(count);
  for (int64_t i = 0; i < count && num_rows; ++i) ids[i] = choose.below(num_rows);
  if (count && choose.one_in(8)) ids[choose.below(count)] = bad_id<int64_t>(choose, num_rows);

  const bool sound =
      std::all_of(ids.begin(), ids.end(), [&](int64_t id) { return in_range(id, num_rows); });
  const Outcome outcome = outcome_of([&] {
    gather_rows(table.data() + table_start, num_rows, row_bytes, ids.data(), nullptr, count,
                out.data() + out_start, count);
  });
  expect(outcome == (sound ? Outcome::kDone : Outcome::kSeedError), sound ? "sound" : "bad",
         " ids: ", outcome);
  for (int64_t i = 0; i < out_start; ++i) {
    expect(out[i] == kUntouched, "byte ", i - out_start, " was written to");
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* got = out.data() + out_start + i * row_bytes;
    const bool right =
        sound ? std::equal(got, got + row_bytes, table.data() + table_start + ids[i] * row_bytes)
              : std::all_of(got, got + row_bytes, [](uint8_t b) { return b == kUntouched; });
    expect(right, "row ", i, " of ", row_bytes, " bytes");
  }
}

}  // namespace lg::fuzz
