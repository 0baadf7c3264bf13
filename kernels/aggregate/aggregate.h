// aggregate.h: what the kernels share that make one row of those of a destination's in-neighbours.
#pragma once

#include <cstdint>

#include "common/floats.h"

namespace lg {

// bfloat16's sums are float32's.
enum class RowFormat { kFloat32 = 0, kFloat64 = 1, kBFloat16 = 2 };

struct AggregateRequest {
  const int32_t* indptr;  // [num_dst + 1]: destination d's sources are indices[indptr[d] ...]
  int64_t num_dst;
  const int32_t* indices;
  int64_t num_edges;
  int64_t num_src;
  int64_t width;
  RowFormat format;
  int num_threads;
};

// Throws GraphFormatError for a block that is none, or a source that is outside of [0, num_src).
void check_block(const AggregateRequest& request);

// Fewer numbers a thread, and starting it takes what it saves.
constexpr int64_t kThreadNumbers = int64_t(1) << 19;

}  // namespace lg
