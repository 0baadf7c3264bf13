// Kernels for lists that lie apart: hops whose neighbours somebody else chose, walks that are taken
// step by step, visits that are ranked afterwards, and layers that are drawn by their degrees or weights.
#include <map>

#include "collective/add_hop.h"
#include "collective/rank_visits.h"
#include "collective/step_walks.h"
#include "draw_layer/draw_layer.h"
#include "draw_nodes/draw_nodes.h"
#include "fuzz/graphs.h"
#include "fuzz/sampling.h"
#include "importance_tree/importance_tree.h"
#include "importance_tree/tree.h"
#include "layer_line/layer_line.h"
#include "random_walk/random_walk.h"

namespace lg::fuzz {
namespace {

// Nodes in order of first occurrence, and where each neighbour stands among them.
void expect_relabelled(const Sampled& sampled, const Exact<int64_t>& known,
                       const Exact<int64_t>& counts, const Exact<int64_t>& neighbors) {
  const HopLayout& hop = sampled.layout.hops[0];
  const int64_t* nodes = sampled.arena.at<int64_t>(0);
  std::map<int64_t, int64_t> local;
  for (const int64_t node : known) local.emplace(node, int64_t(local.size()));
  for (int64_t i = 0; i < neighbors.size(); ++i) {
    const auto [at, is_new] = local.emplace(neighbors[i], int64_t(local.size()));
    expect(sampled.arena.at<int32_t>(hop.indices_offset)[i] == at->second, "neighbour ", i);
  }
  expect(sampled.layout.num_nodes == int64_t(local.size()), sampled.layout.num_nodes, " nodes");
  for (const auto& [node, at] : local) expect(nodes[at] == node, "node ", at, " is ", nodes[at]);
  int64_t edge = 0;
  for (int64_t i = 0; i < counts.size(); ++i) {
    edge += counts[i];
    expect(sampled.arena.at<int32_t>(hop.indptr_offset)[i + 1] == edge, "row ", i);
  }
}

// One step of the walks that go on: `going` and `places` are then of those that still do.
template <class Index>
void take_step(const StepRequest<Index>& request, const Exact<int64_t>& traces, int64_t width,
               std::vector<int64_t>& going, std::vector<int64_t>& places) {
  Exact<int64_t> nodes(request.count);
  Exact<uint8_t> fates(request.count);
  step_walks(request, nodes.data(), fates.data());
  std::vector<int64_t> left, stand;
  for (int64_t i = 0; i < request.count; ++i) {
    const int64_t* trace = traces.data() + going[size_t(i)] * width;
    expect(nodes[i] == trace[request.t + 1], "step ", request.t, " of walk ", going[size_t(i)]);
    expect((nodes[i] < 0) == (fates[i] == kStuck), "a fate of ", int(fates[i]));
    if (fates[i] >= kEnds) continue;
    left.push_back(going[size_t(i)]);
    stand.push_back(fates[i] == kRestarts ? trace[0] : nodes[i]);
  }
  going = std::move(left);
  places = std::move(stand);
}

template <class Index>
void walk(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  if (graph.num_nodes() == 0) return;
  const Exact<AliasEntry> table = random_table(choose, graph.indptr);
  Exact<int64_t> starts(choose.size(40));
  for (int64_t i = 0; i < starts.size(); ++i) starts[i] = choose.below(graph.num_nodes());
  const WalkSettings walks{1 + choose.size(9), 1 + choose.size(9), uint64_t(choose.word()) / 8,
                           uint64_t(choose.word()) / 8 + (uint64_t(1) << 29),
                           table.size() ? table.data() : nullptr};
  const uint64_t seed = choose.wide();
  const uint32_t epoch = choose.word(), step = choose.word(), hop = choose.word() >> 16;
  const int64_t width = walks.length + 1;
  Exact<int64_t> traces(starts.size() * walks.num_walks * width);
  const Csc<Index> csc = graph.csc();
  random_walk<Index, WholeLists>(
      {csc, {csc.indptr}, starts.data(), starts.size(), walks, seed, epoch, step, hop},
      traces.data());
  std::vector<int64_t> going, places;
  for (int64_t i = 0; i < starts.size() * walks.num_walks; ++i) {
    going.push_back(i);
    places.push_back(starts[i / walks.num_walks]);
  }
  for (int64_t t = 0; t < walks.length && !going.empty(); ++t) {
    const Exact<int64_t> stand(places);
    Exact<int64_t> names(int64_t(going.size())), numbers(int64_t(going.size()));
    for (int64_t i = 0; i < names.size(); ++i) {
      names[i] = graph.csc().name(starts[going[size_t(i)] / walks.num_walks]);
      numbers[i] = going[size_t(i)] % walks.num_walks;
    }
    take_step<Index>({graph.csc(), stand.data(), names.data(), numbers.data(), stand.size(), walks,
                      t, seed, epoch, step, hop},
                     traces, width, going, places);
  }
}

}  // namespace

LG_FUZZ_TARGET(add_hop) {
  const int64_t num_nodes = 1 + choose.size(2000);
  Workspace workspace = random_workspace(choose, num_nodes);
  const Exact<int64_t> known = random_seeds(choose, num_nodes);
  Exact<int64_t> counts(known.size());
  int64_t num_edges = 0;
  for (int64_t i = 0; i < counts.size(); ++i) num_edges += counts[i] = choose.size(40);
  Exact<int64_t> neighbors(num_edges);
  for (int64_t i = 0; i < num_edges; ++i) neighbors[i] = choose.below(num_nodes);
  bool sound = true;
  if (num_edges > 0 && choose.one_in(6)) {
    neighbors[choose.below(num_edges)] = bad_id<int64_t>(choose, num_nodes);
    sound = false;
  }
  if (counts.size() > 0 && choose.one_in(6)) {
    int64_t& count = counts[choose.below(counts.size())];
    const int64_t other = choose.one_of<int64_t>({-1, INT64_MAX, INT64_MIN, count + 1});
    sound = sound && count == other;
    count = other;
  }
  const bool columns = choose.flag();
  const Exact<int64_t> ids(columns ? num_edges : 0);
  const Exact<float> weights(columns ? num_edges : 0);
  const Exact<int32_t> types(columns ? num_edges : 0);
  const ChosenEdges edges{counts.data(),
                          neighbors.data(),
                          num_edges,
                          columns ? ids.data() : nullptr,
                          columns ? weights.data() : nullptr,
                          columns ? types.data() : nullptr};
  BatchRequest batch = random_batch_request(choose, known);
  batch.max_local = kMaxLocal;
  const auto refused = refusal(workspace, batch, num_nodes);
  std::optional<Sampled> sampled;
  const Outcome outcome = outcome_of([&] {
    sampled.emplace(sample_into_arenas(batch, choose.size(4096), [&](const BatchRequest& request) {
      return add_hop(workspace, num_nodes, request, edges);
    }));
  });
  const Outcome wanted = sound ? Outcome::kDone : Outcome::kSamplerConfigError;
  expect(outcome == refused.value_or(wanted), "a hop: ", outcome);
  if (outcome != Outcome::kDone) return;
  expect_sound_places(*sampled);
  expect_relabelled(*sampled, known, counts, neighbors);
}

LG_FUZZ_TARGET(step_walks) { choose.flag() ? walk<int32_t>(choose) : walk<int64_t>(choose); }

LG_FUZZ_TARGET(rank_visits) {
  const int64_t num_starts = choose.size(30), num_visits = choose.size(60);
  const int64_t num_neighbors = 1 + choose.size(40);
  Exact<int64_t> starts(num_starts), visits(num_starts * num_visits);
  for (int64_t i = 0; i < num_starts; ++i) starts[i] = choose.size(30);
  for (int64_t i = 0; i < visits.size(); ++i) visits[i] = choose.size(31) - 1;
  const int64_t most = num_starts * std::min(num_neighbors, num_visits);
  Exact<int64_t> counts(num_starts), neighbors(most);
  Exact<float> weights(most);
  const int64_t num_edges = rank_visits({starts.data(), visits.data(), num_starts, num_visits,
                                         num_neighbors, choose.flag(), choose.flag()},
                                        counts.data(), neighbors.data(), weights.data());
  expect(num_edges <= most, num_edges, " edges, but at most ", most);
  for (int64_t i = 0; i < num_edges; ++i) expect(weights[i] > 0, "weight ", i, " is ", weights[i]);
}

LG_FUZZ_TARGET(draw_layer) {
  Exact<int64_t> degrees(choose.size(200));
  for (int64_t i = 0; i < degrees.size(); ++i) degrees[i] = choose.size(100);
  const LayerDraw request{
      degrees.data(),        degrees.size(), choose.flag() ? kWholeLayer : 1 + choose.size(1000),
      choose.flag(),         choose.flag(),  choose.wide(),
      choose.word(),         choose.word(),  choose.word() >> 16,
      int64_t(choose.word())};
  Edges edges;
  draw_layer(request, edges);
  for (int64_t i = 0; i < degrees.size(); ++i) {
    for (int64_t e = edges.indptr[size_t(i)]; e < edges.indptr[size_t(i) + 1]; ++e) {
      expect(in_range(edges.ids[size_t(e)], degrees[i]), "place ", edges.ids[size_t(e)], " of ",
             degrees[i]);
      expect(e == edges.indptr[size_t(i)] || edges.ids[size_t(e) - 1] < edges.ids[size_t(e)],
             "places do not ascend at edge ", e);
    }
  }
}

// Nodes are drawn within the graph, as sample_layers would, and none twice but where they are replaced.
LG_FUZZ_TARGET(draw_nodes) {
  const Graph<int32_t> graph = random_graph<int32_t>(choose);
  Exact<int64_t> tree(graph.num_nodes() + 1);
  importances(graph.csc(), EdgeWeights{}, std::max<int64_t>(graph.num_nodes(), 1), tree.data() + 1);
  build_tree(tree.data(), graph.num_nodes());
  if (tree[0] == 0) return;
  const bool replace = choose.flag();
  const int64_t budget = replace ? 1 + choose.size(100) : 1 + choose.below(tree[0]);
  Exact<int64_t> nodes(budget);
  Exact<double> factors(budget);
  draw_nodes({tree.data(), graph.num_nodes(), budget, replace, choose.wide(), choose.word(),
              choose.word(), choose.word() >> 16, int64_t(choose.word())},
             nodes.data(), factors.data());
  std::map<int64_t, int64_t> times;
  for (int64_t j = 0; j < budget; ++j) {
    expect(in_range(nodes[j], graph.num_nodes()), "draw ", j, " is ", nodes[j]);
    expect(factors[j] > 0, "factor ", j, " is ", factors[j]);
    expect(++times[nodes[j]] == 1 || replace, "node ", nodes[j], " is drawn twice");
  }
}

// Each place of a list is found on the edge that has it, whatever others say of the layer's weights.
LG_FUZZ_TARGET(layer_line) {
  const Graph<int32_t> graph = random_graph<int32_t>(choose);
  if (graph.num_nodes() == 0) return;
  Exact<double> weights(graph.indices.size());
  for (int64_t e = 0; e < weights.size(); ++e) weights[e] = std::abs(random_weight<double>(choose));
  Exact<int64_t> rows(choose.size(20)), lengths(rows.size());
  for (int64_t i = 0; i < rows.size(); ++i) rows[i] = choose.size(graph.num_nodes() - 1);
  double greatest = std::abs(random_weight<double>(choose));
  int64_t num_edges = choose.size(1000);
  const bool sound = choose.flag();
  if (sound) {
    for (int64_t e = 0; e < weights.size(); ++e) greatest = std::max(greatest, weights[e]);
    num_edges = std::max(num_edges, weights.size());
  }
  const LineUnits units{greatest, num_edges};
  LineLists lists{graph.indptr.data(), {nullptr, weights.data()}, rows.data(), rows.size()};
  measure_lists(lists, units, lengths.data());
  Exact<int64_t> places(rows.size());
  for (int64_t i = 0; i < rows.size(); ++i) {
    if (sound && lengths[i] == 0) return;
    places[i] = sound ? int64_t(choose.wide() % uint64_t(lengths[i])) : int64_t(choose.wide() >> 1);
  }
  Exact<int64_t> numbers(rows.size()), begins(rows.size()), own(rows.size());
  Exact<double> parts(rows.size()), wholes(rows.size());
  const Outcome outcome = outcome_of([&] {
    find_on_line(lists, units, places.data(),
                 {numbers.data(), begins.data(), own.data(), parts.data(), wholes.data()});
  });
  if (!sound) return;
  expect(outcome == Outcome::kDone, "places of lists are refused: ", outcome);
  for (int64_t i = 0; i < rows.size(); ++i) {
    const int64_t degree = graph.indptr[rows[i] + 1] - graph.indptr[rows[i]];
    expect(in_range(numbers[i], degree), "edge ", numbers[i], " of ", degree);
    expect(begins[i] <= places[i] && places[i] < begins[i] + own[i], "place ", places[i]);
    expect(parts[i] > 0 && parts[i] <= wholes[i], "a part of ", parts[i], " in ", wholes[i]);
  }
}

}  // namespace lg::fuzz
