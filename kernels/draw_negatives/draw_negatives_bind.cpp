#include <nanobind/stl/tuple.h>

#include "draw_negatives/draw_negatives.h"
#include "find_edges/bind_runs.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "draw_negatives",
      [](Offsets run_ptr, Array<const Index> indices, Place place,
         std::tuple<int64_t, int64_t> sources, Maybe<uint32_t> edge_time, Maybe<uint32_t> src_time,
         Maybe<uint32_t> dst_time, Array<const int64_t> rows, Maybe<int64_t> src,
         Maybe<int64_t> dst, Maybe<uint32_t> until, int64_t num, int64_t num_dst, int64_t tries,
         Table src_alias, Table dst_alias, uint64_t seed, uint32_t epoch, uint32_t hop,
         Array<int64_t> out, std::optional<Array<int64_t>> tried) {
        draw_negatives(NegativesRequest<Index>{type_runs<Index>(run_ptr, indices, place),
                                               {std::get<0>(sources), std::get<1>(sources)},
                                               data(edge_time),
                                               data(src_time),
                                               data(dst_time),
                                               rows.data(),
                                               data(src),
                                               data(dst),
                                               data(until),
                                               int64_t(rows.size()),
                                               num,
                                               num_dst,
                                               tries,
                                               data(src_alias),
                                               data(dst_alias),
                                               seed,
                                               epoch,
                                               hop,
                                               data(tried)},
                       out.data());
      },
      "run_ptr"_a.noconvert(), "indices"_a.noconvert(), "place"_a, "sources"_a,
      "edge_time"_a.noconvert().none(), "src_time"_a.noconvert().none(),
      "dst_time"_a.noconvert().none(), "rows"_a.noconvert(), "src"_a.noconvert().none(),
      "dst"_a.noconvert().none(), "until"_a.noconvert().none(), "num"_a, "num_dst"_a, "tries"_a,
      "src_alias"_a.noconvert().none(), "dst_alias"_a.noconvert().none(), "seed"_a, "epoch"_a,
      "hop"_a, "out"_a.noconvert(), "tried"_a.noconvert().none(), NoGil());
}

}  // namespace lg::bind
