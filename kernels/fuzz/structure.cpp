#include "fuzz/structure.h"

#include <cmath>
#include <set>

#include "common/isa.h"

namespace lg::fuzz {
namespace {

void expect_structure(const Sampled& sampled, const BatchRequest& request, const AnyGraph& graph,
                      size_t num_hops) {
  const SampleLayout& layout = sampled.layout;
  const int64_t* nodes = sampled.arena.at<int64_t>(0);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < layout.num_nodes; ++i) {
    expect(in_range(nodes[i], graph.num_nodes), "nodes[", i, "] is ", nodes[i]);
    expect(seen.insert(nodes[i]).second, "node ", nodes[i], " occurs twice");
    expect(i >= request.num_seeds || nodes[i] == request.seeds[i], "nodes[", i, "] is no seed");
  }
  expect(layout.hops.size() == num_hops, layout.hops.size(), " hops, not ", num_hops);
  int64_t num_known = request.num_seeds;
  for (const HopLayout& hop : layout.hops) {
    expect(hop.num_dst == num_known && hop.num_src >= num_known, hop.num_dst, " destinations and ",
           hop.num_src, " sources after ", num_known, " nodes");
    num_known = hop.num_src;
    const int32_t* indptr = sampled.arena.at<int32_t>(hop.indptr_offset);
    const int32_t* indices = sampled.arena.at<int32_t>(hop.indices_offset);
    expect(indptr[0] == 0 && indptr[hop.num_dst] == hop.num_edges, "indptr does not span edges");
    for (int64_t dst = 0; dst < hop.num_dst; ++dst) {
      expect(indptr[dst] <= indptr[dst + 1], "indptr falls at ", dst);
      for (int64_t e = indptr[dst]; e < indptr[dst + 1]; ++e) {
        expect(in_range(indices[e], hop.num_src), "indices[", e, "] is ", indices[e]);
        if (hop.edge_weights_offset != -1) {
          const float weight = sampled.arena.at<float>(hop.edge_weights_offset)[e];
          expect(std::isfinite(weight) && weight > 0, "weight ", e, " is ", weight);
        }
        if (hop.edge_ids_offset == -1) continue;
        const int64_t edge = sampled.arena.at<int64_t>(hop.edge_ids_offset)[e];
        expect(edge >= graph.indptr[nodes[dst]] && edge < graph.indptr[nodes[dst] + 1] &&
                   graph.source(edge) == nodes[indices[e]],
               "edge ", edge, " does not join ", nodes[indices[e]], " and ", nodes[dst]);
      }
    }
  }
  expect(num_known == layout.num_nodes, layout.num_nodes, " nodes, of which hops know ", num_known);
  expect_sound_places(sampled);
}

}  // namespace

void request_pure_batch(Choices& choose, Workspace& workspace, const AnyGraph& graph,
                        size_t num_hops, const SampleIn& sample) {
  const Exact<int64_t> seeds = random_seeds(choose, graph.num_nodes);
  const BatchRequest request = random_batch_request(choose, seeds);
  std::optional<Sampled> sampled, again;
  const auto sample_with = [&](Workspace& used, int64_t arena_bytes, std::optional<Sampled>& to) {
    return outcome_of([&] {
      to.emplace(sample_into_arenas(
          request, arena_bytes, [&](const BatchRequest& batch) { return sample(used, batch); }));
    });
  };
  const Outcome outcome = sample_with(workspace, choose.flag() ? choose.size(1 << 16) : 0, sampled);
  if (const auto refused = refusal(workspace, request, graph.num_nodes)) {
    expect(outcome == *refused, "a bad request: ", outcome, ", not ", *refused);
    return;
  }
  // Limits below all nodes and edges may count what is not in the batch after all.
  expect(outcome == Outcome::kDone ||
             (outcome == Outcome::kSamplerConfigError && request.max_local < kMaxLocal),
         "a sound request: ", outcome);
  if (!sampled) return;
  expect_structure(*sampled, request, graph, num_hops);

  set_isa(Isa::kBaseline);
  Workspace fresh(graph.num_nodes, choose.flag());
  expect(sample_with(fresh, 1 << 16, again) == outcome, "another outcome in another workspace");
  expect(again->layout.num_nodes == sampled->layout.num_nodes, "another number of nodes");
  const auto expect_same = [&](const char* name, int64_t here, int64_t there, int64_t num_bytes) {
    expect((here == -1) == (there == -1), name, " is there once, and once not");
    expect(here == -1 || std::equal(sampled->arena.at<uint8_t>(here),
                                    sampled->arena.at<uint8_t>(here) + num_bytes,
                                    again->arena.at<uint8_t>(there)),
           name, " is another in another workspace");
  };
  expect_same("nodes", 0, 0, sampled->layout.num_nodes * 8);
  for (size_t h = 0; h < num_hops; ++h) {
    const HopLayout &a = sampled->layout.hops[h], &b = again->layout.hops[h];
    expect(a.num_edges == b.num_edges, "another number of edges");
    expect_same("indptr", a.indptr_offset, b.indptr_offset, (a.num_dst + 1) * 4);
    expect_same("indices", a.indices_offset, b.indices_offset, a.num_edges * 4);
    expect_same("edge_ids", a.edge_ids_offset, b.edge_ids_offset, a.num_edges * 8);
    expect_same("edge_weights", a.edge_weights_offset, b.edge_weights_offset, a.num_edges * 4);
  }
}

}  // namespace lg::fuzz
