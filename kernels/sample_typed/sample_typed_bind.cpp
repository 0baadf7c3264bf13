#include "bind/queries.h"
#include "bind/runs.h"
#include "bind/sampler.h"
#include "sample_typed/sample_typed.h"

namespace lg::bind {

LG_BIND(m) {
  m.attr("MAX_TYPED_HOPS") = kMaxTypedHops;
  nb::class_<SparseArrays>(m, "SparseRuns")
      .def(
          "__init__",
          [](SparseArrays* self, Array<const int64_t> run_ptr, Array<const int64_t> first_run,
             Array<const int32_t> run_type, Maybe<uint32_t> edge_time, Array<const uint8_t> timed) {
            new (self) SparseArrays{run_ptr, first_run, run_type, edge_time, timed};
          },
          "run_ptr"_a.noconvert(), "first_run"_a.noconvert(), "run_type"_a.noconvert(),
          "edge_time"_a.noconvert().none(), "timed"_a.noconvert());
  nb::class_<DenseArrays>(m, "DenseRuns")
      .def(
          "__init__",
          [](DenseArrays* self, Offsets run_ptr, Array<const int64_t> first_node,
             Array<const int64_t> first_run, Array<const int64_t> slot_ptr,
             Array<const int32_t> slot_type, Maybe<uint32_t> edge_time,
             Array<const uint8_t> timed) {
            new (self)
                DenseArrays{run_ptr, first_node, first_run, slot_ptr, slot_type, edge_time, timed};
          },
          "run_ptr"_a.noconvert(), "first_node"_a.noconvert(), "first_run"_a.noconvert(),
          "slot_ptr"_a.noconvert(), "slot_type"_a.noconvert(), "edge_time"_a.noconvert().none(),
          "timed"_a.noconvert());
  nb::class_<QueryArrays>(m, "Queries")
      .def(
          "__init__",
          [](QueryArrays* self, Maybe<int32_t> of_seed, Maybe<uint32_t> name, Maybe<uint32_t> since,
             Maybe<uint32_t> until, Maybe<int64_t> excluded, Maybe<int32_t> excluded_query,
             int64_t num_queries, int shift, bool by_row, bool along_path, uint32_t path_end) {
            new (self) QueryArrays{of_seed,     name,  since,  until,      excluded, excluded_query,
                                   num_queries, shift, by_row, along_path, path_end};
          },
          "of_seed"_a.noconvert().none(), "name"_a.noconvert().none(), "since"_a.noconvert().none(),
          "until"_a.noconvert().none(), "excluded"_a.noconvert().none(),
          "excluded_query"_a.noconvert().none(), "num_queries"_a, "shift"_a, "by_row"_a,
          "along_path"_a, "path_end"_a);
  m.def(
      "sample_typed",
      [](const AnyInput& any, AnyLists lists, std::vector<int64_t> fanouts, int64_t num_types,
         bool is_untyped, bool replace, bool newest, bool expand_new, bool edge_ids,
         const QueryArrays* queries) {
        const int64_t num_hops = num_types ? int64_t(fanouts.size()) / num_types : 0;
        return any.sampled([&](Workspace& workspace, const auto& input) {
          return std::visit(
              [&](const auto* arrays) {
                const AnyRuns runs = arrays->with([](const auto& each) -> AnyRuns { return each; });
                const EdgeTimes times{data(arrays->edge_time), arrays->timed.data()};
                return sample_typed(workspace, request<SampleTypedRequest>(
                                                   input, runs, times, fanouts, num_types, num_hops,
                                                   is_untyped, replace, newest, expand(expand_new),
                                                   edge_ids, queries_of(queries)));
              },
              lists);
        });
      },
      "input"_a, "lists"_a, "fanouts"_a, "num_types"_a, "is_untyped"_a, "replace"_a, "newest"_a,
      "expand_new"_a, "edge_ids"_a, "queries"_a.none());
}

}  // namespace lg::bind
