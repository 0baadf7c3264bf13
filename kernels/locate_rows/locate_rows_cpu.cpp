#include "locate_rows/locate_rows.h"

#include <algorithm>
#include <vector>

#include "common/error.h"
#include "common/fetch.h"
#include "common/signals.h"
#include "gather_rows/check_ids.h"

namespace lg {
namespace {

constexpr int64_t kAhead = 32;       // new ids of nodes at random: each is on a line of its own
constexpr int64_t kMostInTurn = 16;  // so many parts are compared with one by one, without a branch

int64_t part_of(int64_t new_id, const PartPlaces& places) {
  const int64_t* const ends = places.starts + 1;
  if (places.num_parts > kMostInTurn) {
    return std::upper_bound(ends, ends + places.num_parts, new_id) - ends;
  }
  int64_t part = 0;
  for (int64_t p = 0; p < places.num_parts; ++p) part += int64_t(ends[p] <= new_id);
  return part;
}

}  // namespace

void locate_rows(const int64_t* rows, int64_t count, int64_t num_rows, const PartPlaces& places,
                 int64_t* counts, int64_t* own_rows, int64_t* positions) {
  check_ids(rows, count, num_rows);
  const int64_t num_ids = places.starts[places.num_parts];
  const int64_t* const new_ids = places.new_ids ? places.new_ids + places.first : nullptr;
  std::fill_n(counts, places.num_parts, 0);
  std::vector<int64_t> found(static_cast<size_t>(count));
  std::vector<int32_t> parts(static_cast<size_t>(count));
  SignalWatch().in_pieces(0, count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (new_ids && i + kAhead < count) fetch_line(new_ids + rows[i + kAhead]);
      const int64_t new_id = new_ids ? new_ids[rows[i]] : rows[i];
      if (!in_range(new_id, num_ids)) {
        fail<GraphFormatError>("row ", rows[i], " has the new id ", new_id,
                               ", but parts have ids below ", num_ids,
                               ": make the partition again.");
      }
      const int64_t part = part_of(new_id, places);
      found[size_t(i)] = new_id - places.begins[part];
      parts[size_t(i)] = int32_t(part);
      ++counts[part];
    }
  });
  std::vector<int64_t> next(static_cast<size_t>(places.num_parts));
  for (int64_t p = 1; p < places.num_parts; ++p)
    next[size_t(p)] = next[size_t(p - 1)] + counts[p - 1];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = next[size_t(parts[size_t(i)])]++;
    own_rows[at] = found[size_t(i)];
    positions[at] = i;
  }
}

}  // namespace lg
