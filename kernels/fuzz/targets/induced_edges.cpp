// Groups keep every edge that joins two of their nodes, and no other; bad groups are refused.
#include "induced_edges/induced_edges.h"

#include <map>
#include <set>

#include "fuzz/sampling.h"

namespace lg::fuzz {
namespace {

struct Groups {
  std::vector<int64_t> nodes, ptr;
};

// Groups of distinct nodes, many of them empty or of one node.
Groups random_groups(Choices& choose, int64_t num_nodes) {
  Groups groups{{}, {0}};
  for (int64_t left = choose.size(6); left > 0; --left) {
    std::set<int64_t> known;
    for (int64_t tries = choose.size(3 * num_nodes); tries > 0 && num_nodes > 0; --tries) {
      const int64_t node = choose.below(num_nodes);
      if (known.insert(node).second) groups.nodes.push_back(node);
    }
    groups.ptr.push_back(int64_t(groups.nodes.size()));
  }
  return groups;
}

// Whether the groups are still sound.
bool spoil(Choices& choose, Groups& groups, int64_t num_nodes) {
  if (groups.nodes.empty() || !choose.one_in(6)) return true;
  const int64_t at = choose.below(int64_t(groups.nodes.size()));
  switch (choose.below(3)) {
    case 0:
      groups.nodes[size_t(at)] = bad_id<int64_t>(choose, num_nodes);
      return false;
    case 1:  // a node twice in its group
      for (size_t g = 0; g + 1 < groups.ptr.size(); ++g) {
        if (groups.ptr[g] <= at && at < groups.ptr[g + 1] - 1) {
          groups.nodes[size_t(at)] = groups.nodes[size_t(groups.ptr[g + 1] - 1)];
          return false;
        }
      }
      return true;
    default: {
      int64_t& start = groups.ptr[size_t(choose.below(int64_t(groups.ptr.size())))];
      start = choose.one_of<int64_t>({INT64_MIN, INT64_MAX, -1, int64_t(groups.nodes.size()) + 1});
      return false;
    }
  }
}

template <class Index>
void expect_induced(const Csc<Index>& graph, const Groups& groups, const Edges& edges,
                    int64_t num_edges) {
  int64_t next = 0;
  for (size_t g = 0; g + 1 < groups.ptr.size(); ++g) {
    std::map<int64_t, int64_t> place_of;
    for (int64_t i = groups.ptr[g]; i < groups.ptr[g + 1]; ++i) {
      place_of[groups.nodes[size_t(i)]] = i;
    }
    for (int64_t i = groups.ptr[g]; i < groups.ptr[g + 1]; ++i) {
      const int64_t node = groups.nodes[size_t(i)];
      expect(edges.indptr[size_t(i)] == next, "node ", i, " begins at ", edges.indptr[size_t(i)]);
      for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e) {
        const auto found = place_of.find(graph.indices[e]);
        if (found == place_of.end()) continue;
        expect(next < num_edges && edges.indices[size_t(next)] == found->second &&
                   edges.ids[size_t(next)] == e,
               "node ", i, " lacks the edge ", e);
        ++next;
      }
    }
  }
  expect(next == num_edges && edges.indptr[groups.nodes.size()] == next, num_edges, " edges, not ",
         next);
}

template <class Index>
void check(Choices& choose) {
  Graph<Index> graph = random_graph<Index>(choose);
  const bool ascends = choose.flag();  // so that hubs are searched
  for (int64_t v = 0; v < graph.num_nodes() && ascends; ++v) {
    std::sort(graph.indices.data() + graph.indptr[v], graph.indices.data() + graph.indptr[v + 1]);
  }
  Workspace workspace = random_workspace(choose, graph.num_nodes());
  for (int64_t left = choose.between(1, 3); left > 0; --left) {
    Groups groups = random_groups(choose, graph.num_nodes());
    const bool is_sound = spoil(choose, groups, graph.num_nodes());
    const Exact<int64_t> nodes(groups.nodes), ptr(groups.ptr);
    const int64_t max_local = choose.one_in(8) ? choose.size(100) : kMaxLocal;
    const InducedEdgesRequest<Index> request{graph.csc(), nodes.data(),   nodes.size(),
                                             ptr.data(),  ptr.size() - 1, max_local};
    bool is_taken = false;
    const Outcome outcome = outcome_of([&] {
      induced_edges(workspace, request, [&](const Edges& edges, int64_t num_edges) {
        is_taken = true;
        expect_induced(request.graph, groups, edges, num_edges);
      });
    });
    expect(is_taken == (outcome == Outcome::kDone), "edges and an error: ", outcome);
    if (workspace.num_nodes < graph.num_nodes()) {
      expect(outcome == Outcome::kSamplerConfigError, "a small workspace: ", outcome);
    } else if (max_local == kMaxLocal) {
      expect(outcome == (is_sound ? Outcome::kDone : Outcome::kSeedError), "groups: ", outcome);
    }
  }
}

}  // namespace

LG_FUZZ_TARGET(induced_edges) { choose.flag() ? check<int32_t>(choose) : check<int64_t>(choose); }

}  // namespace lg::fuzz
