// check_ids.h: the range checks of a gather, before it reads or writes any row.
#pragma once

#include "common/error.h"

namespace lg {

inline void check_ids(const int64_t* ids, int64_t count, int64_t num_rows) {
  for (int64_t i = 0; i < count; ++i) {
    if (!in_range(ids[i], num_rows)) {
      fail<SeedError>("ids[", i, "] is ", ids[i], ", but the table has ", num_rows,
                      " rows: ids must lie in [0, ", num_rows, ").");
    }
  }
}

// Without positions, row i of the output is for ids[i].
inline void check_positions(const int64_t* positions, int64_t count, int64_t num_out) {
  if (positions == nullptr) {
    if (count > num_out)
      fail<SeedError>(count, " ids were given, but out has ", num_out,
                      " rows: one for each is needed.");
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!in_range(positions[i], num_out)) {
      fail<SeedError>("positions[", i, "] is ", positions[i], ", but out has ", num_out,
                      " rows: positions must lie in [0, ", num_out, ").");
    }
  }
}

}  // namespace lg
