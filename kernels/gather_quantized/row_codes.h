// row_codes.h: what the vectors of a row become as they are gathered on a device: themselves, or floats
// that 8-bit codes stand for, as gather_quantized.h has it, bit for bit.
#pragma once

#include "common/cuda/move_rows.h"
#include "common/float_bits.h"

namespace lg {

// What codes stand for: code * scale + offset. Null for rows that are moved as they are.
struct Columns {
  const float* scale;  // [width], which begins at a multiple of 16 bytes
  const float* offset;
};

// Formats of what is written.
struct AsBytes;
struct Float32 {
  using Bits = uint32_t;
  static __device__ Bits of(float value) { return bits_of(value); }
};
struct Float16 {
  using Bits = uint16_t;
  static __device__ Bits of(float value) { return to_float16(value); }
};
struct BFloat16 {
  using Bits = uint16_t;
  static __device__ Bits of(float value) { return to_bfloat16(value); }
};

// As many numbers of a column as a vector has bytes.
template <class T, int kNumbers>
struct alignas(kNumbers * sizeof(T)) Numbers {
  T of[kNumbers];
};

template <class Vector, class Format>
struct RowCodes {
  static constexpr int kCodes = int(sizeof(Vector));
  using Floats = Numbers<float, kCodes>;
  using Out = Numbers<typename Format::Bits, kCodes>;
  Columns columns;

  __device__ Out operator()(Vector codes, uint32_t vector) const {
    const Floats scale = reinterpret_cast<const Floats*>(columns.scale)[vector];
    const Floats offset = reinterpret_cast<const Floats*>(columns.offset)[vector];
    Out out;
    for (int c = 0; c < kCodes; ++c) {
      const float code = float(static_cast<signed char>(codes >> 8 * c));
      out.of[c] = Format::of(code * scale.of[c] + offset.of[c]);
    }
    return out;
  }
};

template <class Vector>
struct RowCodes<Vector, AsBytes> : AsItIs<Vector> {
  __device__ explicit RowCodes(Columns) {}
};

}  // namespace lg
