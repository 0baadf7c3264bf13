// The vector code of this folder, for AVX2.
#if defined(__x86_64__) && defined(__GNUC__)
#define LG_LANES 256
// clang-format off
// Plain headers come first, so that no function of theirs gets these instructions.
#include "sample_typed/run_positions.h"
#include "sample_typed/run_positions_lanes.h"
// clang-format on

namespace lg {

int64_t* run_positions_avx2(const RunChunk& chunk, int64_t* position) {
  return run_positions_lanes(chunk, position);
}

}  // namespace lg
#endif
