#include "orders/random_keys.h"

#include "common/draw.h"
#include "common/signals.h"

namespace lg {

void random_keys(uint64_t seed, uint32_t epoch, const int64_t* ids, int64_t count, uint64_t* keys) {
  const StreamKey key = stream_key(seed, epoch);
  SignalWatch().in_pieces(0, count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) keys[i] = ordering_key(key, ids[i]);
  });
}

}  // namespace lg
