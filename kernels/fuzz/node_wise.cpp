#include "fuzz/node_wise.h"

#include <numeric>
#include <set>
#include <unordered_map>

#include "sample_neighbors/uniform_positions.h"

namespace lg::fuzz {

// Words whose product falls below 2^32 mod bound would come too often.
int64_t wanted_draw(const NodeDraws& draws, int64_t j, int64_t bound) {
  constexpr uint64_t kWords = uint64_t(1) << 32;
  for (uint32_t attempt = 0;; ++attempt) {
    const uint64_t product = uint64_t(draw_word(draws, uint32_t(j), attempt)) * uint64_t(bound);
    if (product % kWords >= kWords % uint64_t(bound)) return int64_t(product / kWords);
  }
}

std::vector<int64_t> wanted_positions(const NodeDraws& draws, int64_t degree, int64_t fanout,
                                      bool replace) {
  std::vector<int64_t> positions;
  if (degree == 0) return positions;
  if (fanout == kAllNeighbors || (!replace && degree <= fanout)) {
    positions.resize(size_t(degree));
    std::iota(positions.begin(), positions.end(), 0);
  } else if (replace) {
    for (int64_t j = 0; j < fanout; ++j) positions.push_back(wanted_draw(draws, j, degree));
  } else {
    std::set<int64_t> picked;
    for (int64_t last = degree - fanout; last < degree; ++last) {
      const int64_t drawn = wanted_draw(draws, last - (degree - fanout), last + 1);
      positions.push_back(picked.count(drawn) ? last : drawn);
      picked.insert(positions.back());
    }
  }
  return positions;
}

namespace {

struct WantedHop {
  int64_t num_dst = 0, num_src = 0;
  std::vector<int64_t> indptr, indices, edge_ids, edge_types;
  std::vector<float> edge_weights;
};

struct Wanted {
  std::vector<int64_t> nodes;
  std::vector<WantedHop> hops;
};

Wanted wanted_batch(const BatchRequest& request, size_t num_hops, Expand expand,
                    const PickEdges& pick) {
  Wanted wanted;
  std::unordered_map<int64_t, int64_t> local;
  const auto local_id = [&](int64_t node) {
    const auto [entry, is_new] = local.try_emplace(node, int64_t(local.size()));
    if (is_new) wanted.nodes.push_back(node);
    return entry->second;
  };
  for (int64_t i = 0; i < request.num_seeds; ++i) local_id(request.seeds[i]);
  WantedHop hop;  // or, when only new nodes are expanded, all hops so far
  for (size_t h = 0; h < num_hops; ++h) {
    if (h == 0 || expand == Expand::kAll) {
      hop = WantedHop();
      hop.indptr = {0};
    }
    hop.num_dst = int64_t(wanted.nodes.size());
    for (int64_t dst = int64_t(hop.indptr.size()) - 1; dst < hop.num_dst; ++dst) {
      for (const Pick& picked : pick(request, wanted.nodes[size_t(dst)], uint32_t(h))) {
        hop.indices.push_back(local_id(picked.node));
        hop.edge_ids.push_back(picked.edge);
        hop.edge_types.push_back(picked.type);
        hop.edge_weights.push_back(picked.weight);
      }
      hop.indptr.push_back(int64_t(hop.indices.size()));
    }
    hop.num_src = int64_t(wanted.nodes.size());
    wanted.hops.push_back(hop);
  }
  return wanted;
}

template <class T, class Number>
void expect_equal(const Sampled& sampled, const char* name, size_t hop, int64_t offset,
                  const std::vector<Number>& wanted) {
  const T* got = sampled.arena.at<T>(offset);
  for (size_t i = 0; i < wanted.size(); ++i) {
    expect(got[i] == T(wanted[i]), "hop ", hop, ": ", name, "[", i, "] is ", got[i], ", not ",
           wanted[i]);
  }
}

void expect_batch(const Sampled& sampled, const Wanted& wanted, EdgeColumns columns) {
  const SampleLayout& layout = sampled.layout;
  expect(layout.num_nodes == int64_t(wanted.nodes.size()), layout.num_nodes, " nodes, not ",
         wanted.nodes.size());
  expect(layout.hops.size() == wanted.hops.size(), layout.hops.size(), " hops");
  expect_equal<int64_t>(sampled, "nodes", 0, 0, wanted.nodes);
  for (size_t h = 0; h < wanted.hops.size(); ++h) {
    const HopLayout& got = layout.hops[h];
    const WantedHop& hop = wanted.hops[h];
    expect(got.num_dst == hop.num_dst && got.num_src == hop.num_src &&
               got.num_edges == int64_t(hop.indices.size()),
           "hop ", h, " has ", got.num_dst, " destinations, ", got.num_src, " sources and ",
           got.num_edges, " edges, not ", hop.num_dst, ", ", hop.num_src, " and ",
           hop.indices.size());
    expect_equal<int32_t>(sampled, "indptr", h, got.indptr_offset, hop.indptr);
    expect_equal<int32_t>(sampled, "indices", h, got.indices_offset, hop.indices);
    expect((got.edge_ids_offset != -1) == columns.ids &&
               (got.edge_weights_offset != -1) == columns.weights &&
               (got.edge_types_offset != -1) == columns.types,
           "columns that were not asked for, or none");
    if (columns.ids) {
      expect_equal<int64_t>(sampled, "edge_ids", h, got.edge_ids_offset, hop.edge_ids);
    }
    if (columns.weights) {
      expect_equal<float>(sampled, "edge_weights", h, got.edge_weights_offset, hop.edge_weights);
    }
    if (columns.types) {
      expect_equal<int32_t>(sampled, "edge_types", h, got.edge_types_offset, hop.edge_types);
    }
  }
}

}  // namespace

void request_batch(Choices& choose, const Workspace& workspace, int64_t num_graph_nodes,
                   size_t num_hops, Expand expand, EdgeColumns columns, const Sample& sample,
                   const PickEdges& pick) {
  const Exact<int64_t> seeds = random_seeds(choose, num_graph_nodes);
  const BatchRequest request = random_batch_request(choose, seeds);
  const int64_t arena_bytes = choose.flag() ? choose.size(1 << 16) : 0;
  std::optional<Sampled> sampled;
  const Outcome outcome =
      outcome_of([&] { sampled.emplace(sample_into_arenas(request, arena_bytes, sample)); });

  if (const auto refused = refusal(workspace, request, num_graph_nodes)) {
    expect(outcome == *refused, "a bad request: ", outcome, ", not ", *refused);
    return;
  }
  const Wanted wanted = wanted_batch(request, num_hops, expand, pick);
  const int64_t limit = request.max_local, num_nodes = int64_t(wanted.nodes.size());
  int64_t num_edges = 0;
  for (const WantedHop& hop : wanted.hops) {
    num_edges = std::max(num_edges, int64_t(hop.indices.size()));
  }
  // Before it knows how many nodes are new, a kernel may take all for new.
  const bool may_fit = num_nodes <= limit && num_edges <= limit;
  const bool must_fit = num_graph_nodes <= limit && num_edges <= limit;
  expect(outcome == Outcome::kDone ? may_fit : outcome == Outcome::kSamplerConfigError && !must_fit,
         "a batch of ", num_nodes, " nodes and ", num_edges, " edges, where ", limit,
         " are the limit: ", outcome);
  if (sampled) {
    expect_batch(*sampled, wanted, columns);
    expect_sound_places(*sampled);
  }
}

}  // namespace lg::fuzz
