#include "bind/bind.h"
#include "gather_tiered/gather_tiered.h"

namespace lg::bind {

LG_BIND(m) {
  m.attr("SLOT_BITS") = kSlotBits;
  m.attr("MAX_SHARDS") = kMaxShards;
  using Ids = Array<const int64_t>;
  using Missed = std::optional<Array<int64_t>>;
  m.def(
      "gather_tiered",
      [](Array<const int32_t> location, const std::vector<Array<const uint8_t>>& shards,
         const std::vector<int64_t>& shard_rows, Maybe<uint8_t> backing, int64_t row_bytes, Ids ids,
         std::optional<Ids> positions, Bytes out, int64_t num_out, Missed missed_ids,
         Missed missed_positions) {
        TieredRequest request{location.data(),
                              int64_t(location.size()),
                              {},
                              data(backing),
                              row_bytes,
                              ids.data(),
                              data(positions),
                              int64_t(ids.size()),
                              out.data(),
                              num_out,
                              data(missed_ids),
                              data(missed_positions)};
        for (size_t shard = 0; shard < shards.size(); ++shard) {
          request.shards[shard] = {shards[shard].data(), shard_rows[shard]};
        }
        const Taken taken = [&] {
          nb::gil_scoped_release no_gil;
          return gather_tiered(request);
        }();
        nb::list hits;
        for (size_t shard = 0; shard < shards.size(); ++shard) hits.append(taken.hits[shard]);
        return nb::make_tuple(nb::tuple(hits), taken.misses);
      },
      "location"_a.noconvert(), "shards"_a.noconvert(), "shard_rows"_a,
      "backing"_a.noconvert().none(), "row_bytes"_a, "ids"_a.noconvert(),
      "positions"_a.noconvert().none(), "out"_a.noconvert(), "num_out"_a,
      "missed_ids"_a.noconvert().none(), "missed_positions"_a.noconvert().none());
}

}  // namespace lg::bind
