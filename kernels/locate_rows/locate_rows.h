// locate_rows.h: rows of a table that lies in parts, by part.
//
//   in   rows[count]       of the whole table; SeedError names the first outside [0, num_rows)
//   in   places.new_ids    node first + r, which row r is of, has this new id; nullptr: rows are new ids
//   in   places.starts     [num_parts + 1], ascending from 0: the new ids of part p begin at starts[p]
//   in   places.begins     [num_parts]: the new id of part p's first row
//   out  counts[num_parts] rows of each part
//   out  own_rows[count]   row numbers among the part's own, all of part 0 first, in the order of `rows` within each
//   out  positions[count]  where each of these stands in `rows`
//
// GraphFormatError: a new id lies in no part. After an error, what has been written is of no use.
#pragma once

#include <cstdint>

namespace lg {

struct PartPlaces {
  const int64_t* new_ids;
  int64_t first;
  const int64_t* starts;
  const int64_t* begins;
  int64_t num_parts;
};

void locate_rows(const int64_t* rows, int64_t count, int64_t num_rows, const PartPlaces& places,
                 int64_t* counts, int64_t* own_rows, int64_t* positions);

}  // namespace lg
