// The check agrees with a plain one on arrays spoiled anywhere, and what it lets through is safe to
// sample from, from every node.
#include "graph/check_csc.h"

#include <numeric>

#include "fuzz/sampling.h"
#include "sample_neighbors/sample_neighbors.h"

namespace lg::fuzz {
namespace {

template <class Index>
bool is_csc(const Graph<Index>& graph) {
  const Exact<int64_t>& indptr = graph.indptr;
  bool sound = indptr[0] == 0 && indptr[graph.num_nodes()] == graph.indices.size();
  for (int64_t v = 0; v < graph.num_nodes() && sound; ++v) {
    // Unsigned: the difference of any two numbers is defined.
    sound =
        indptr[v] <= indptr[v + 1] && uint64_t(indptr[v + 1]) - uint64_t(indptr[v]) <= 0xffffffff;
  }
  return sound && std::all_of(graph.indices.begin(), graph.indices.end(),
                              [&](Index index) { return in_range(index, graph.num_nodes()); });
}

// Spoiled offsets may be anything, so their sums wrap.
int64_t wrapped_sum(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }

template <class Index>
void spoil(Choices& choose, Graph<Index>& graph) {
  const int64_t at = choose.below(graph.indptr.size());
  int64_t& offset = graph.indptr[at];
  switch (choose.below(5)) {
    case 0:
      offset =
          choose.one_of({INT64_MIN, INT64_MAX, int64_t(-1), graph.indices.size(),
                         wrapped_sum(offset, int64_t(1) << 32), int64_t(1) << choose.below(63)});
      break;
    case 1:
      offset = wrapped_sum(offset, choose.between(-2, 2));
      break;
    case 2:
      std::swap(offset, graph.indptr[choose.below(graph.indptr.size())]);
      break;
    case 3:  // one neighbour more for one node: all later lists move
      for (int64_t v = at; v < graph.indptr.size(); ++v) {
        graph.indptr[v] = wrapped_sum(graph.indptr[v], 1);
      }
      break;
    default:
      if (graph.indices.size() == 0) break;
      graph.indices[choose.below(graph.indices.size())] =
          choose.one_of<Index>({bad_id<Index>(choose, graph.num_nodes()), Index(0)});
  }
}

template <class Index>
void sample_from_all(const Graph<Index>& graph) {
  Exact<int64_t> seeds(graph.num_nodes());
  std::iota(seeds.data(), seeds.data() + seeds.size(), 0);
  Workspace workspace(graph.num_nodes(), false);
  SampleRequest<Index> request{graph.csc(), {}, {3, -1}, false, Expand::kAll, true};
  request.batch.seeds = seeds.data();
  request.batch.num_seeds = seeds.size();
  sample_into_arenas(request.batch, 1 << 12, [&](const BatchRequest& batch) {
    request.batch = batch;
    return sample_neighbors(workspace, request);
  });
}

template <class Index>
void check(Choices& choose) {
  Graph<Index> graph = random_graph<Index>(choose);
  for (int64_t left = choose.size(2); left > 0; --left) spoil(choose, graph);
  const bool sound = is_csc(graph);
  const Outcome outcome = outcome_of([&] {
    check_csc(graph.indptr.data(), graph.num_nodes(), graph.indices.data(), graph.indices.size());
  });
  expect(outcome == (sound ? Outcome::kDone : Outcome::kGraphFormatError), "a ",
         sound ? "sound" : "broken", " graph: ", outcome);
  if (sound) sample_from_all(graph);
}

}  // namespace

LG_FUZZ_TARGET(check_csc) { choose.flag() ? check<int32_t>(choose) : check<int64_t>(choose); }

LG_FUZZ_TARGET(check_csc_refuses_degrees_beyond_32_bits) {
  if (endless_indices() == nullptr) return;
  Exact<int64_t> indptr(choose.between(2, 5));
  const int64_t hub = choose.between(1, indptr.size() - 1);
  for (int64_t v = 1; v < indptr.size(); ++v) {
    indptr[v] = indptr[v - 1] + (v == hub ? (int64_t(1) << 32) + choose.size(1 << 30) : 0);
  }
  const int64_t num_nodes = indptr.size() - 1;
  const Outcome outcome = outcome_of(
      [&] { check_csc(indptr.data(), num_nodes, endless_indices(), indptr[num_nodes]); });
  expect(outcome == Outcome::kGraphFormatError, "a degree of 2^32 or more: ", outcome);
}

}  // namespace lg::fuzz
