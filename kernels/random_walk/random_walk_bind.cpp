#include "bind/walk_lists.h"
#include "random_walk/random_walk.h"

namespace lg::bind {

template <class Index>
static void define_walk(nb::module_& m) {
  m.def(
      "random_walk",
      [](Array<const int64_t> indptr, Array<const Index> indices, const WalkRuns* runs, Table table,
         Array<const int64_t> starts, int64_t length, int64_t num_walks, uint64_t end_below,
         uint64_t restart_below, uint64_t seed, uint32_t epoch, uint32_t step, uint32_t hop,
         Names names, Array<int64_t> traces) {
        const Csc<Index> graph = csc(indptr, indices, names);
        with_walk_lists(runs, graph, [&](const auto& lists) {
          using Lists = std::decay_t<decltype(lists)>;
          const WalkSettings walks{length, num_walks, end_below, restart_below, data(table)};
          random_walk<Index, Lists>(
              {graph, lists, starts.data(), int64_t(starts.size()), walks, seed, epoch, step, hop},
              traces.data());
        });
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "runs"_a.none(),
      "table"_a.noconvert().none(), "starts"_a.noconvert(), "length"_a, "num_walks"_a,
      "end_below"_a, "restart_below"_a, "seed"_a, "epoch"_a, "step"_a, "hop"_a,
      "names"_a.noconvert().none(), "traces"_a.noconvert(), NoGil());
}

LG_BIND(m) {
  m.attr("MAX_WALK_BLOCKS") = kMaxWalkBlocks;
  nb::class_<WalkRuns>(m, "WalkRuns")
      .def(nb::init<Offsets, const std::vector<int64_t>&, const std::vector<int64_t>&>(),
           "run_ptr"_a.noconvert(), "first"_a, "stride"_a);
  define_walk<int32_t>(m);
  define_walk<int64_t>(m);
}

}  // namespace lg::bind
