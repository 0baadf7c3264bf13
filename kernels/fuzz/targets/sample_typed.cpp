// Lists are sorted by type, or cut by type and time, and each type is drawn from as if there were no others, by
// either layout of runs. What queries ask for is not made again here, but must hold of the batch.
#include "sample_typed/sample_typed.h"

#include <map>
#include <optional>
#include <set>

#include "fuzz/cut.h"
#include "fuzz/node_wise.h"
#include "sample_typed/pick_typed.h"

namespace lg::fuzz {
namespace {

constexpr int64_t kMaxEdgeTypes = 4095;

Exact<int32_t> sorted_types(Choices& choose, const Exact<int64_t>& indptr, int64_t num_types) {
  Exact<int32_t> types(indptr[indptr.size() - 1]);
  for (int64_t e = 0; e < types.size(); ++e) types[e] = int32_t(choose.below(num_types));
  for (int64_t v = 0; v + 1 < indptr.size(); ++v) {
    std::sort(types.data() + indptr[v], types.data() + indptr[v + 1]);
  }
  return types;
}

// The runs that are not empty, of sorted lists.
class Sparse {
 public:
  template <class Index>
  Sparse(const Graph<Index>& graph, const Exact<int32_t>& types)
      : first_run_(graph.num_nodes() + 1) {
    std::vector<int64_t> begins;
    std::vector<int32_t> of_run;
    for (int64_t v = 0; v < graph.num_nodes(); ++v) {
      const int64_t first = graph.indptr[v];
      first_run_[v] = int64_t(begins.size());
      for (int64_t e = first; e < graph.indptr[v + 1]; ++e) {
        if (e > first && types[e] == types[e - 1]) continue;
        begins.push_back(e);
        of_run.push_back(types[e]);
      }
    }
    first_run_[graph.num_nodes()] = int64_t(begins.size());
    begins.push_back(types.size());
    run_ptr_.emplace(begins);
    run_type_.emplace(of_run);
  }

  SparseRuns runs() const { return {run_ptr_->data(), first_run_.data(), run_type_->data()}; }

 private:
  Exact<int64_t> first_run_;
  std::optional<Exact<int64_t>> run_ptr_;
  std::optional<Exact<int32_t>> run_type_;
};

constexpr std::initializer_list<int64_t> kFanouts = {kAllNeighbors, 0, 0, 1, 2, 3, 5, 16, 17, 65};

// All but the runs and times, and the queries.
template <class Index>
SampleTypedRequest<Index> random_request(Choices& choose, const Graph<Index>& graph,
                                         const AnyRuns& runs, int64_t num_types) {
  SampleTypedRequest<Index> request{{graph.csc(), {}},
                                    runs,
                                    {},
                                    {},
                                    num_types,
                                    choose.size(3),
                                    /*is_untyped=*/false,
                                    choose.flag(),
                                    /*newest=*/false,
                                    choose.flag() ? Expand::kAll : Expand::kNew,
                                    choose.flag(),
                                    {}};
  request.fanouts.resize(size_t(request.num_hops * num_types));
  for (int64_t& fanout : request.fanouts) fanout = choose.one_of<int64_t>(kFanouts);
  return request;
}

// A batch without queries; types: of each edge.
template <class Index>
void request_typed(Choices& choose, Workspace& workspace, const Graph<Index>& graph,
                   const Exact<int32_t>& types, SampleTypedRequest<Index>& request) {
  const int64_t num_types = request.num_types;
  request_batch(
      choose, workspace, graph.num_nodes(), size_t(request.num_hops), request.expand,
      {/*ids=*/request.edge_ids, /*weights=*/false, /*types=*/true},
      [&](const BatchRequest& batch) {
        request.batch = batch;
        return sample_typed(workspace, request);
      },
      [&](const BatchRequest& batch, int64_t node, uint32_t hop) {
        std::map<int32_t, std::vector<int64_t>> edges;  // by type, ascending
        for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e) {
          edges[types[e]].push_back(e);
        }
        const StreamKey key = stream_key(batch.seed, batch.epoch);
        std::vector<Pick> picks;
        for (const auto& [type, of_type] : edges) {
          const int64_t fanout = request.fanouts[size_t(hop * num_types + type)];
          if (fanout == 0) continue;
          for (const int64_t position :
               wanted_positions(node_draws(key, batch.step, typed_hop(batch.hop + hop, type),
                                           request.graph.name(node)),
                                int64_t(of_type.size()), fanout, request.replace)) {
            const int64_t edge = of_type[size_t(position)];
            picks.push_back({int64_t(graph.indices[edge]), edge, type});
          }
        }
        return picks;
      });
}

template <class Index>
void sample_indexed_graph(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const int64_t num_types = 1 + choose.size(choose.one_in(50) ? kMaxEdgeTypes - 1 : 5);
  const Exact<int32_t> types = sorted_types(choose, graph.indptr, num_types);
  const Sparse sparse(graph, types);
  Workspace workspace = random_workspace(choose, graph.num_nodes());
  for (int64_t left = choose.between(1, 3); left > 0; --left) {
    SampleTypedRequest<Index> request =
        random_request<Index>(choose, graph, sparse.runs(), num_types);
    request_typed(choose, workspace, graph, types, request);
  }
}

struct QueryArrays {
  Exact<int32_t> of_seed;
  Exact<uint32_t> name, since, until;
  Exact<int64_t> excluded;
  Exact<int32_t> excluded_of;

  QueryArrays(Choices& choose, int64_t num_seeds, int64_t num_queries, int64_t num_edges)
      : of_seed(num_seeds),
        name(num_queries),
        since(num_queries),
        until(num_queries),
        excluded(num_edges ? choose.size(2 * num_edges) : 0),
        excluded_of(excluded.size()) {
    for (int64_t i = 0; i < num_seeds; ++i) of_seed[i] = int32_t(choose.below(num_queries));
    for (int64_t q = 0; q < num_queries; ++q) {
      name[q] = choose.word();
      since[q] = choose.flag() ? 0 : uint32_t(choose.size(60));
      until[q] = choose.flag() ? 0xffffffff : uint32_t(choose.size(60));
    }
    for (int64_t i = 0; i < excluded.size(); ++i) {
      excluded[i] = choose.below(num_edges);
      excluded_of[i] = int32_t(choose.below(num_queries));
    }
  }
};

template <class Index, class Offset>
void expect_what_queries_ask(const Sampled& sampled, const SampleTypedRequest<Index>& request,
                             const Graph<Index>& graph, const Cut<Offset>& cut) {
  const SampleLayout& layout = sampled.layout;
  const int64_t* nodes = sampled.arena.at<int64_t>(0);
  const int32_t* queries = sampled.arena.at<int32_t>(layout.queries_offset);
  const Queries& asked = request.queries;
  std::set<std::pair<int32_t, int64_t>> excluded;
  for (int64_t i = 0; i < asked.num_excluded; ++i) {
    excluded.emplace(asked.excluded_of[i], asked.excluded[i]);
  }
  std::map<std::pair<int64_t, int32_t>, int64_t> seen;
  for (int64_t i = 0; i < layout.num_nodes; ++i) {
    expect(in_range(nodes[i], graph.num_nodes()) && in_range(queries[i], asked.num_queries),
           "node ", i, " is ", nodes[i], " of query ", queries[i]);
    expect(asked.along_path || seen.emplace(std::pair(nodes[i], queries[i]), i).second, "node ", i,
           " is in the batch twice");
  }
  for (const HopLayout& hop : layout.hops) {
    const int32_t* indptr = sampled.arena.at<int32_t>(hop.indptr_offset);
    const int32_t* indices = sampled.arena.at<int32_t>(hop.indices_offset);
    const int64_t* ids = sampled.arena.at<int64_t>(hop.edge_ids_offset);
    for (int64_t dst = 0; dst < hop.num_dst; ++dst) {
      for (int32_t e = indptr[dst]; e < indptr[dst + 1]; ++e) {
        const int32_t query = queries[dst];
        expect(ids[e] >= graph.indptr[nodes[dst]] && ids[e] < graph.indptr[nodes[dst] + 1] &&
                   graph.indices[ids[e]] == nodes[indices[e]] && queries[indices[e]] == query,
               "edge ", e, " of destination ", dst);
        expect(!(dst < request.batch.num_seeds || asked.along_path) ||
                   !excluded.count({query, ids[e]}),
               "edge ", e, " of destination ", dst, " is excluded");
        if (!cut.timed[cut.types[ids[e]]]) continue;
        const uint32_t code = cut.code[ids[e]];
        expect(code >= asked.since[query] && code < asked.until[query], "edge ", e,
               " of destination ", dst, " is of time ", code);
      }
    }
  }
}

template <class Index, class Offset>
void sample_cut_graph(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const Cut<Offset> cut(choose, graph);
  Workspace workspace = random_workspace(choose, graph.num_nodes());
  const Sparse sparse(graph, cut.types);
  const AnyRuns runs = choose.flag() ? AnyRuns(sparse.runs()) : AnyRuns(cut.runs(cut.most_slots));
  SampleTypedRequest<Index> request =
      random_request<Index>(choose, graph, runs, cut.slot_type.size());
  request_typed(choose, workspace, graph, cut.types, request);

  const Exact<int64_t> seeds = random_seeds(choose, graph.num_nodes());
  const int64_t num_queries = choose.between(1, 6), num_edges = graph.indices.size();
  const QueryArrays arrays(choose, seeds.size(), num_queries, num_edges);
  request.times = {cut.code.data(), cut.timed.data()};
  request.edge_ids = true;
  request.newest = choose.flag();
  request.replace = request.replace && !request.newest;
  request.queries = {num_queries,
                     40,
                     arrays.of_seed.data(),
                     choose.flag() ? arrays.name.data() : nullptr,
                     choose.flag(),
                     arrays.since.data(),
                     arrays.until.data(),
                     num_edges > 0 && choose.flag(),
                     uint32_t(choose.below(2)),
                     arrays.excluded.data(),
                     arrays.excluded_of.data(),
                     arrays.excluded.size()};
  const BatchRequest batch = random_batch_request(choose, seeds);
  std::optional<Sampled> sampled;
  outcome_of([&] {
    sampled.emplace(sample_into_arenas(batch, 0, [&](const BatchRequest& with_arena) {
      request.batch = with_arena;
      return sample_typed(workspace, request);
    }));
  });
  if (!sampled) return;
  expect_sound_places(*sampled);
  expect_what_queries_ask(*sampled, request, graph, cut);
}

template <class Index>
void sample_random_graph(Choices& choose) {
  if (choose.flag()) {
    sample_indexed_graph<Index>(choose);
  } else if (choose.flag()) {
    sample_cut_graph<Index, uint32_t>(choose);
  } else {
    sample_cut_graph<Index, int64_t>(choose);
  }
}

}  // namespace

LG_FUZZ_TARGET(sample_typed) {
  choose.flag() ? sample_random_graph<int32_t>(choose) : sample_random_graph<int64_t>(choose);
}

}  // namespace lg::fuzz
