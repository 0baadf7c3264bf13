#include "common/isa.h"
#include "find_edges/type_runs.h"

namespace lg {
namespace {

// Loops of fixed length become vector instructions; one that may end early does not.
template <int kBlock, class Value>
inline __attribute__((always_inline)) bool has(const Value* values, Value wanted) {
  Value found = 0;
  for (int l = 0; l < kBlock; ++l) found |= Value(values[l] == wanted);
  return found != 0;
}

template <class Value>
inline __attribute__((always_inline)) int64_t find(const Value* values, int64_t count,
                                                   Value wanted) {
  int64_t i = 0;
  while (i + 32 <= count && !has<32>(values + i, wanted)) i += 32;
  while (i + 8 <= count && !has<8>(values + i, wanted)) i += 8;
  while (i < count && values[i] != wanted) ++i;
  return i < count ? i : -1;
}

template <class Value>
int64_t find_baseline(const Value* values, int64_t count, Value wanted) {
  return find(values, count, wanted);
}

#ifdef LG_X86
template <class Value>
LG_TARGET_AVX2 int64_t find_avx2(const Value* values, int64_t count, Value wanted) {
  return find(values, count, wanted);
}

template <class Value>
LG_TARGET_AVX512 int64_t find_avx512(const Value* values, int64_t count, Value wanted) {
  return find(values, count, wanted);
}
#endif

}  // namespace

template <class Value>
Scan<Value> scan() {
#ifdef LG_X86
  if (used_isa() == Isa::kAvx512) return find_avx512<Value>;
  if (used_isa() == Isa::kAvx2) return find_avx2<Value>;
#endif
  return find_baseline<Value>;
}

template Scan<int32_t> scan();
template Scan<int64_t> scan();

}  // namespace lg
