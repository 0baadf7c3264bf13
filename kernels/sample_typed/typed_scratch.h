// typed_scratch.h: what choosing by type and time keeps from batch to batch (pick_typed.h).
#pragma once

#include <cstdint>
#include <vector>

#include "sample_typed/exclusion.h"
#include "sample_typed/fill_runs.h"
#include "sample_typed/run_positions.h"
#include "sample_typed/time_search.h"

namespace lg {

struct TypedScratch {
  // The in-neighbours of one destination by edges of one type.
  struct Run {
    int64_t start;  // the query above the position
    uint32_t degree;
    int32_t type, dst;  // dst: in the chunk
  };
  struct Part {
    bool is_plain;  // its destinations choose from whole runs, as these are read: none is listed
    std::vector<Run> runs;
    int64_t num_runs = 0;
    TimeSearch search;
  };
  // A run whose positions change once they are drawn.
  struct Skip {
    int64_t first, count;  // in the chunk's positions
    ExcludedPart part;
  };

  Part parts[2];
  std::vector<Skip> skips;
  std::vector<RunRule> rules;  // of the hop, by edge type
  SlotRules slot_rules;        // the same, where runs lie by node type
  RunPositions positions;
  PathQueries paths;
  Exclusion exclusion;
};

}  // namespace lg
