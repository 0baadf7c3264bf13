#include "bind/bind.h"
#include "partition/settle_nodes.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "settle_nodes",
      [](Maybe<uint64_t> held, Array<int32_t> part, Array<int64_t> num_own) {
        settle_nodes(data(held), int64_t(part.size()), part.data(), num_own.data(),
                     int64_t(num_own.size()));
      },
      "held"_a.noconvert().none(), "part"_a.noconvert(), "num_own"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
