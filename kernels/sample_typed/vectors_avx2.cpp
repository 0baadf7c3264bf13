// The vector code of this folder, for AVX2.
#if defined(__x86_64__) && defined(__GNUC__)
#define LG_LANES 256
// clang-format off
// Plain headers come first, so that no function of theirs gets these instructions.
#include "sample_typed/fill_runs.h"
#include "sample_typed/run_positions.h"
#include "sample_typed/fill_runs_lanes.h"
#include "sample_typed/run_positions_lanes.h"
// clang-format on

namespace lg {

void run_positions_avx2(const RunChunk& chunk, int64_t* position, int32_t* types) {
  run_positions_lanes(chunk, position, types);
}

int fill_runs_avx2(const RunsOf& from, RunChunk& chunk, int64_t* count) {
  return fill_runs_lanes(from, chunk, count);
}

}  // namespace lg
#endif
