#if defined(__x86_64__) && defined(__GNUC__)
#define LG_LANES 256
#include "sample_neighbors/uniform_chunk_lanes.h"

namespace lg {

void uniform_positions_avx2(const UniformChunk& chunk, uint32_t* words, int64_t* position) {
  positions_lanes(chunk, words, position);
}

}  // namespace lg
#endif
