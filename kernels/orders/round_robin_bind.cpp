#include "bind/bind.h"
#include "orders/round_robin.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "round_robin",
      [](const std::vector<Array<const int32_t>>& sequences, Array<const int64_t> starts,
         Array<int32_t> order) {
        std::vector<const int32_t*> begins;
        for (const auto& sequence : sequences) begins.push_back(sequence.data());
        round_robin(begins, starts.data(), int64_t(order.size()), order.data());
      },
      "sequences"_a.noconvert(), "starts"_a.noconvert(), "order"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
