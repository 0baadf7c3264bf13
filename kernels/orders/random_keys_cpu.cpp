#include "orders/random_keys.h"

#include "common/draw.h"

namespace lg {

void random_keys(uint64_t seed, uint32_t epoch, const int64_t* ids, int64_t count, uint64_t* keys) {
  const StreamKey key = stream_key(seed, epoch);
  for (int64_t i = 0; i < count; ++i) keys[i] = ordering_key(key, ids[i]);
}

}  // namespace lg
