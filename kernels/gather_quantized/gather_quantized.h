// gather_quantized.h: out[i][c] = codes[ids[i]][c] * scale[c] + offset[c], as floats of 32 or 16 bits.
//
//   in   codes       num_rows rows of `width` int8
//   in   scale       [width] float32, finite; a column of scale 0 is all offset
//        offset      [width] float32, finite
//   in   ids[count]  every one is checked before any row is read; SeedError names the first bad one
//   in   positions   [count] rows of out, or nullptr for 0, 1, 2, ...; checked likewise
//   out  out         num_out rows of `width` numbers of `format`, starting anywhere; must overlap
//                    nothing else. Rows that are no one's position are left alone.
//
// The product is rounded to float32, then the sum, then what is written: all to nearest, ties to
// even, with any instruction set. Beyond the largest float16, infinity.
#pragma once

#include <cstdint>

namespace lg {

enum class FloatFormat { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };

struct QuantizedRequest {
  const int8_t* codes;
  int64_t num_rows;
  int64_t width;
  const float* scale;
  const float* offset;
  const int64_t* ids;
  const int64_t* positions;
  int64_t count;
  uint8_t* out;
  int64_t num_out;
  FloatFormat format;
};

void gather_quantized(const QuantizedRequest& request);

}  // namespace lg
