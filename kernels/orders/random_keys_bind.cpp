#include "bind/bind.h"
#include "orders/random_keys.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "random_keys",
      [](uint64_t seed, uint32_t epoch, Array<const int64_t> ids, Array<uint64_t> keys) {
        random_keys(seed, epoch, ids.data(), int64_t(ids.size()), keys.data());
      },
      "seed"_a, "epoch"_a, "ids"_a.noconvert(), "keys"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
