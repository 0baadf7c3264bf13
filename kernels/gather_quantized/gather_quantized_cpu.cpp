#include "gather_quantized/gather_quantized.h"

#include <vector>

#include "common/float_bits.h"
#include "gather_rows/check_ids.h"
#include "gather_rows/table_rows.h"

namespace lg {
namespace {

struct Float32 {
  using Bits = uint32_t;
  static Bits of(float value) { return bits_of(value); }
};

struct Float16 {
  using Bits = uint16_t;
  static Bits of(float value) { return to_float16(value); }
};

struct BFloat16 {
  using Bits = uint16_t;
  static Bits of(float value) { return to_bfloat16(value); }
};

// Made floats as they are taken, in a buffer that stays in the first-level cache. From there they
// are copied like any row: past the caches, where the output is large.
template <class Format>
struct FloatRows : TableRows {
  const float* scale;
  const float* offset;
  typename Format::Bits* buffer;

  LG_ALWAYS_INLINE const uint8_t* take(int64_t i) const {
    const int8_t* const codes = reinterpret_cast<const int8_t*>(TableRows::take(i));
    const float* __restrict const scale_ = scale;
    const float* __restrict const offset_ = offset;
    typename Format::Bits* __restrict const to = buffer;
    for (int64_t c = 0; c < num_bytes; ++c)
      to[c] = Format::of(float(codes[c]) * scale_[c] + offset_[c]);
    return reinterpret_cast<const uint8_t*>(buffer);
  }
};

template <class Format>
void gather_as(const QuantizedRequest& r) {
  using Bits = typename Format::Bits;
  const int64_t row_bytes = r.width * int64_t(sizeof(Bits));
  std::vector<Bits> buffer(static_cast<size_t>(r.width));
  const TableRows codes{reinterpret_cast<const uint8_t*>(r.codes), r.width, r.ids, r.positions};
  copy_rows(FloatRows<Format>{codes, r.scale, r.offset, buffer.data()}, r.count,
            {r.out, r.num_out, row_bytes});
}

}  // namespace

void gather_quantized(const QuantizedRequest& request) {
  check_ids(request.ids, request.count, request.num_rows);
  check_positions(request.positions, request.count, request.num_out);
  if (request.width == 0) return;
  switch (request.format) {
    case FloatFormat::kFloat32:
      return gather_as<Float32>(request);
    case FloatFormat::kFloat16:
      return gather_as<Float16>(request);
    case FloatFormat::kBFloat16:
      return gather_as<BFloat16>(request);
  }
}

}  // namespace lg
