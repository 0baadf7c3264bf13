// Bytes come out as the floats that plain arithmetic makes of them, at their positions and nowhere
// else; one bad id or position, and nothing is written.
#include "gather_quantized/gather_quantized.h"

#include "common/float_bits.h"
#include "fuzz/graphs.h"
#include "fuzz/target.h"

namespace lg::fuzz {

LG_FUZZ_TARGET(gather_quantized) {
  constexpr uint8_t kUntouched = 0xA5;
  const int64_t num_rows = choose.size(40), width = choose.size(200);
  const int64_t count = num_rows == 0 ? 0 : choose.size(200);
  const bool placed = choose.flag();
  const int64_t num_out = placed ? count + choose.size(20) : count;
  const auto format =
      choose.one_of({FloatFormat::kFloat32, FloatFormat::kFloat16, FloatFormat::kBFloat16});
  const int64_t size = format == FloatFormat::kFloat32 ? 4 : 2, row_bytes = width * size;

  Exact<int8_t> codes(num_rows * width);
  for (int64_t i = 0; i < codes.size(); ++i) codes[i] = int8_t(i * 167 >> 3);
  Exact<float> scale(width), offset(width);
  for (int64_t c = 0; c < width; ++c) {
    scale[c] = float_of(choose.word() % 0x70000000u);  // finite, and so is what comes of it
    offset[c] = float_of(choose.word() % 0x70000000u);
  }
  Exact<int64_t> ids(count), positions(count);
  for (int64_t i = 0; i < count; ++i) {
    ids[i] = choose.below(num_rows);
    positions[i] = num_out - 1 - i;
  }
  if (count && choose.one_in(8)) ids[choose.below(count)] = bad_id<int64_t>(choose, num_rows);
  if (count && choose.one_in(8)) positions[choose.below(count)] = bad_id<int64_t>(choose, num_out);
  Exact<uint8_t> out(num_out * row_bytes, kUntouched);

  bool sound = true;
  std::vector<uint8_t> wanted(size_t(out.size()), kUntouched);
  for (int64_t i = 0; i < count; ++i) {
    sound = sound && in_range(ids[i], num_rows) && (!placed || in_range(positions[i], num_out));
  }
  for (int64_t i = 0; i < count && sound; ++i) {
    for (int64_t c = 0; c < width; ++c) {
      const volatile float product = float(codes[ids[i] * width + c]) * scale[c];  // rounded
      const float value = product + offset[c];
      const uint32_t bits = format == FloatFormat::kFloat32   ? bits_of(value)
                            : format == FloatFormat::kFloat16 ? to_float16(value)
                                                              : to_bfloat16(value);
      const int64_t place = (placed ? positions[i] : i) * width + c;
      for (int64_t byte = 0; byte < size; ++byte) {
        wanted[size_t(place * size + byte)] = uint8_t(bits >> (8 * byte));
      }
    }
  }
  const Outcome outcome = outcome_of([&] {
    gather_quantized({codes.data(), num_rows, width, scale.data(), offset.data(), ids.data(),
                      placed ? positions.data() : nullptr, count, out.data(), num_out, format});
  });
  expect(outcome == (sound ? Outcome::kDone : Outcome::kSeedError), outcome);
  for (int64_t i = 0; i < out.size(); ++i) {
    expect(out[i] == wanted[size_t(i)], "byte ", i, " of rows of ", row_bytes);
  }
}

}  // namespace lg::fuzz
