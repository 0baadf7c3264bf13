// The key of an id is the same whatever ids stand around it.
#include "orders/random_keys.h"

#include "common/draw.h"
#include "fuzz/exact.h"
#include "fuzz/target.h"

namespace lg::fuzz {

LG_FUZZ_TARGET(random_keys) {
  const uint64_t seed = choose.wide();
  const uint32_t epoch = choose.word();
  Exact<int64_t> ids(choose.size(200));
  for (int64_t i = 0; i < ids.size(); ++i) ids[i] = int64_t(choose.wide() >> choose.below(64));
  Exact<uint64_t> keys(ids.size());
  random_keys(seed, epoch, ids.data(), ids.size(), keys.data());
  for (int64_t i = 0; i < ids.size(); ++i) {
    expect(keys[i] == ordering_key(stream_key(seed, epoch), ids[i]), "the key of id ", ids[i]);
  }
}

}  // namespace lg::fuzz
