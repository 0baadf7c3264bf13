// What is kept is what Philox says, element by element, for any number of elements, threads and
// formats; nothing beyond the tensors is read or written; the bits pass the same elements again.
#include "dropout/dropout.h"

#include <cmath>

#include "common/floats.h"
#include "fuzz/exact.h"
#include "fuzz/target.h"

namespace lg::fuzz {
namespace {

template <class T>
void drop_and_check(Choices& choose, DropoutFormat format) {
  const int64_t count = choose.size(3000);
  const DropoutKey key =
      dropout_key(choose.wide(), choose.word(), choose.word(), uint16_t(choose.word()),
                  uint16_t(choose.word()), choose.word());
  const auto threshold = uint32_t(choose.below(65536));
  const bool relu = choose.flag(), in_place = choose.flag(), with_bits = choose.flag();
  Exact<T> in(count), out(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t word = choose.wide();  // any number, NaN and infinity among them
    std::memcpy(&in[i], &word, sizeof(T));
  }
  std::vector<T> before(in.data(), in.data() + count);
  T* const to = in_place ? in.data() : out.data();
  const DropoutRequest request{in.data(), to, count, format, threshold, int(choose.between(1, 3))};
  Exact<uint32_t> bits((count + kDropoutChunk - 1) / kDropoutChunk * kBlockWords);
  dropout(request, key, relu, with_bits ? bits.data() : nullptr);

  const double scale = 65536.0 / (65536 - threshold);
  const auto expect_dropped = [&](const T& result, const T& number, bool keep, int64_t i) {
    using Number = decltype(widen(number));
    T wanted;
    narrow(keep ? widen(number) * Number(scale) : Number(0), &wanted);
    const bool both_nan = std::isnan(widen(wanted)) && std::isnan(widen(result));
    expect(both_nan || std::memcmp(&wanted, &result, sizeof(T)) == 0, "element ", i, " of ", count);
  };
  std::vector<bool> kept(size_t(count), false);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t chunk = i / kDropoutChunk, place = i % kDropoutChunk;
    const Words4 words = dropout_words(key, uint64_t(chunk * kChunkBlocks + place % 32 / 2));
    const uint32_t each[kBlockWords] = {words.x, words.y, words.z, words.w};
    const uint32_t half = each[place / 32] >> (place % 2 ? 16 : 0) & 0xffff;
    const bool passes = !relu || !(widen(before[size_t(i)]) <= 0);
    kept[size_t(i)] = half >= threshold && passes;
    expect_dropped(to[i], before[size_t(i)], kept[size_t(i)], i);
  }
  if (!with_bits) return;
  Exact<T> gradient(count);
  dropout_by_bits({before.data(), gradient.data(), count, format, threshold, 2}, bits.data());
  for (int64_t i = 0; i < count; ++i) {
    expect(bool(bits[i / 32] >> (i % 32) & 1) == kept[size_t(i)], "bit ", i, " of ", count);
    expect_dropped(gradient[i], before[size_t(i)], kept[size_t(i)], i);
  }
}

}  // namespace

LG_FUZZ_TARGET(dropout) {
  switch (choose.below(4)) {
    case 0:
      return drop_and_check<float>(choose, DropoutFormat::kFloat32);
    case 1:
      return drop_and_check<Float16>(choose, DropoutFormat::kFloat16);
    case 2:
      return drop_and_check<BFloat16>(choose, DropoutFormat::kBFloat16);
    default:
      return drop_and_check<double>(choose, DropoutFormat::kFloat64);
  }
}

}  // namespace lg::fuzz
