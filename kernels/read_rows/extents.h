// extents.h: which reads give the wanted rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "read_rows/read_rows.h"

namespace lg {

struct WantedRow {
  int64_t id, position;
};

// One read, and the rows that it gives: wanted[first] up to wanted[last].
struct Extent {
  int64_t begin, num_bytes;  // in the file, whole units
  int64_t needed_bytes;      // of which so many, up to where its last row ends, must be there
  int64_t first, last;
};

// In the order of the file, which is the order that disks and their controllers read ahead in.
inline std::vector<WantedRow> sorted_rows(const int64_t* ids, const int64_t* positions,
                                          int64_t count) {
  std::vector<WantedRow> wanted(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    wanted[size_t(i)] = {ids[i], positions == nullptr ? i : positions[i]};
  }
  const auto by_id = [](const WantedRow& a, const WantedRow& b) { return a.id < b.id; };
  if (!std::is_sorted(wanted.begin(), wanted.end(), by_id)) {
    std::sort(wanted.begin(), wanted.end(), by_id);
  }
  return wanted;
}

inline std::vector<Extent> plan_reads(const RowFile& file, const std::vector<WantedRow>& wanted,
                                      int64_t most_bytes) {
  std::vector<Extent> extents;
  for (int64_t i = 0; i < int64_t(wanted.size()); ++i) {
    const int64_t row = file.offset + wanted[size_t(i)].id * file.row_bytes;
    const int64_t row_end = row + file.row_bytes;
    const int64_t begin = row / file.unit * file.unit;
    const int64_t end = (row_end + file.unit - 1) / file.unit * file.unit;
    if (!extents.empty()) {
      Extent& open = extents.back();
      if (begin <= open.begin + open.num_bytes && end - open.begin <= most_bytes) {
        open.num_bytes = end - open.begin;
        open.needed_bytes = row_end - open.begin;
        open.last = i + 1;
        continue;
      }
    }
    extents.push_back({begin, end - begin, row_end - begin, i, i + 1});
  }
  return extents;
}

}  // namespace lg
