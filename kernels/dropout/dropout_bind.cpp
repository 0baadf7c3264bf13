#include "bind/bind.h"
#include "dropout/dropout.h"

namespace lg::bind {

// Tensors come as addresses: NumPy has no bfloat16, and a view by DLPack costs more than a small layer's dropout.
static DropoutRequest request(uintptr_t in, uintptr_t out, int64_t count, int format,
                              uint32_t threshold, int num_threads) {
  return {reinterpret_cast<const void*>(in),
          reinterpret_cast<void*>(out),
          count,
          DropoutFormat(format),
          threshold,
          num_threads};
}

LG_BIND(m) {
  m.def(
      "dropout_key",
      [](uint64_t seed, uint32_t epoch, uint32_t step, uint16_t rank, uint16_t layer,
         uint32_t call) {
        const DropoutKey key = dropout_key(seed, epoch, step, rank, layer, call);
        return nb::make_tuple(key.low, key.high);
      },
      "seed"_a, "epoch"_a, "step"_a, "rank"_a, "layer"_a, "call"_a);
  m.def(
      "dropout",
      [](uintptr_t in, uintptr_t out, int64_t count, int format, uint32_t threshold,
         int num_threads, uint64_t low, uint64_t high, bool relu, uintptr_t bits) {
        dropout(request(in, out, count, format, threshold, num_threads), {low, high}, relu,
                reinterpret_cast<uint32_t*>(bits));
      },
      "input"_a, "out"_a, "count"_a, "format"_a, "threshold"_a, "num_threads"_a, "low"_a, "high"_a,
      "relu"_a, "bits"_a, NoGil());
  m.def(
      "dropout_by_bits",
      [](uintptr_t in, uintptr_t out, int64_t count, int format, uint32_t threshold,
         int num_threads, uintptr_t bits) {
        dropout_by_bits(request(in, out, count, format, threshold, num_threads),
                        reinterpret_cast<const uint32_t*>(bits));
      },
      "input"_a, "out"_a, "count"_a, "format"_a, "threshold"_a, "num_threads"_a, "bits"_a, NoGil());
}

}  // namespace lg::bind
