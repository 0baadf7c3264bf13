#include "bind/bind.h"
#include "collective/step_walks.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "step_walks",
      [](Array<const int64_t> indptr, Array<const Index> indices, Table table,
         Array<const int64_t> places, Array<const int64_t> starts, Array<const int64_t> numbers,
         int64_t length, int64_t num_walks, uint64_t end_below, uint64_t restart_below, int64_t t,
         uint64_t seed, uint32_t epoch, uint32_t step, uint32_t hop, Array<int64_t> nodes,
         Bytes fates) {
        step_walks<Index>({csc(indptr, indices),
                           places.data(),
                           starts.data(),
                           numbers.data(),
                           int64_t(places.size()),
                           {length, num_walks, end_below, restart_below, data(table)},
                           t,
                           seed,
                           epoch,
                           step,
                           hop},
                          nodes.data(), fates.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "table"_a.noconvert().none(),
      "places"_a.noconvert(), "starts"_a.noconvert(), "numbers"_a.noconvert(), "length"_a,
      "num_walks"_a, "end_below"_a, "restart_below"_a, "t"_a, "seed"_a, "epoch"_a, "step"_a,
      "hop"_a, "nodes"_a.noconvert(), "fates"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
