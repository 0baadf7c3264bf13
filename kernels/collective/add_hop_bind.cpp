#include "bind/sampler.h"
#include "collective/add_hop.h"

namespace lg::bind {
LG_BIND(m) {
  m.def(
      "add_hop",
      [](Workspace& workspace, int64_t num_graph_nodes, Array<const int64_t> known,
         Array<const int64_t> counts, Array<const int64_t> neighbors, Maybe<int64_t> edge_ids,
         Maybe<float> edge_weights, Maybe<int32_t> edge_types, Bytes arena, int64_t max_local) {
        const ChosenEdges edges{counts.data(),  neighbors.data(),   int64_t(neighbors.size()),
                                data(edge_ids), data(edge_weights), data(edge_types)};
        BatchRequest batch{};  // its draws have been made
        batch.seeds = known.data();
        batch.num_seeds = int64_t(known.size());
        batch.arena = arena.data();
        batch.arena_bytes = int64_t(arena.size());
        batch.max_local = max_local;
        return sampled([&] { return add_hop(workspace, num_graph_nodes, batch, edges); });
      },
      "workspace"_a, "num_graph_nodes"_a, "known"_a.noconvert(), "counts"_a.noconvert(),
      "neighbors"_a.noconvert(), "edge_ids"_a.noconvert().none(),
      "edge_weights"_a.noconvert().none(), "edge_types"_a.noconvert().none(), "arena"_a.noconvert(),
      "max_local"_a = kMaxLocal);
}

}  // namespace lg::bind
