#include "dropout/dropout.h"

#include <type_traits>

#include "common/slices.h"
#include "dropout/drop_avx2.h"
#include "dropout/drop_avx512.h"

namespace lg {
namespace {

// Threads that wait for work, instead of being started, would have to spin to be there much sooner, and would be lost
// in a fork.
constexpr int64_t kThreadElements = int64_t(1) << 20;

template <DropBy by, class T>
void drop_chunks(const T* in, T* out, uint32_t* bits, int64_t begin, int64_t end,
                 const DropLaw& law) {
#ifdef LG_X86
  if constexpr (!std::is_same_v<T, double>) {
    if (used_isa() == Isa::kAvx512) return drop_avx512<by>(in, out, bits, begin, end, law);
  }
  // AVX2 by itself converts no float16: that is another extension.
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, BFloat16>) {
    if (used_isa() == Isa::kAvx2) return drop_avx2<by>(in, out, bits, begin, end, law);
  }
#endif
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t at = chunk * kDropoutChunk;
    drop_part<by>(in + at, out + at, bits ? bits + chunk * kBlockWords : nullptr, chunk,
                  kDropoutChunk, law);
  }
}

template <DropBy by, class T>
void drop_all(const DropoutRequest& request, uint32_t* bits, DropoutKey key) {
  const T* in = static_cast<const T*>(request.in);
  T* out = static_cast<T*>(request.out);
  const DropLaw law{key, request.threshold, 65536.0 / double(65536 - request.threshold)};
  const int64_t whole = request.count / kDropoutChunk;
  const auto drop = [&](int64_t begin, int64_t end) {
    drop_chunks<by>(in, out, bits, begin, end, law);
  };
  in_threads(whole, request.count, kThreadElements, request.num_threads, drop);
  const int64_t at = whole * kDropoutChunk;
  if (at < request.count) {
    drop_part<by>(in + at, out + at, bits ? bits + whole * kBlockWords : nullptr, whole,
                  int(request.count - at), law);
  }
}

template <DropBy by>
void drop_format(const DropoutRequest& request, uint32_t* bits, DropoutKey key) {
  switch (request.format) {
    case DropoutFormat::kFloat32:
      return drop_all<by, float>(request, bits, key);
    case DropoutFormat::kFloat16:
      return drop_all<by, Float16>(request, bits, key);
    case DropoutFormat::kBFloat16:
      return drop_all<by, BFloat16>(request, bits, key);
    case DropoutFormat::kFloat64:
      return drop_all<by, double>(request, bits, key);
  }
}

}  // namespace

void dropout(const DropoutRequest& request, DropoutKey key, bool relu, uint32_t* bits) {
  if (relu) return drop_format<DropBy::kKeyAndRelu>(request, bits, key);
  drop_format<DropBy::kKey>(request, bits, key);
}

void dropout_by_bits(const DropoutRequest& request, const uint32_t* bits) {
  drop_format<DropBy::kBits>(request, const_cast<uint32_t*>(bits), {});  // which reads them alone
}

}  // namespace lg
