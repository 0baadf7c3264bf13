// sample_walks_cuda.cu: the edges of a hop from the nodes that random walks visit most often, many
// destinations at once: a team of threads (common/cuda/team.h) serves one.
#include "common/cuda/adjacency.h"
#include "common/cuda/batch.h"
#include "common/cuda/kernel.h"
#include "random_walk/walk.h"
#include "sample_walks/count_visits.h"

namespace lg {

constexpr uint32_t kMaxTeams = 128;  // of a block

// What walks visit most often, by destination.
template <class Index>
struct Visited {
  uint32_t most;        // of a destination
  uint32_t* num_edges;  // how many destination dst has
  Index* neighbors;     // [dst - *first][most], and likewise
  float* weights;
};

// Teams that serve a destination each.
struct Teams {
  uint32_t team_size;  // threads
  uint32_t size;       // of a team's Visits: at least rounds * num_walks, and `most`
  // [teams of the grid][2 * size]; nullptr: shared memory of the blocks, as much
  Word* scratch;
};

// The neighbours of each destination: the nodes that its walks visit most often.
//   out  visited
template <class Index, class Offset>
__global__ void __launch_bounds__(1024)
    visit_most(Adjacency<Index> graph, RunLists<Offset> lists, Adjacency<AliasEntry> tables,
               Batch batch, Hop hop, DrawKey key, WalkSettings walks, Visited<Index> visited,
               Teams teams, int32_t include_self, int32_t normalize) {
  if (has_failed(batch.error)) return;
  LG_DYNAMIC_SHARED(Word, shared);
  __shared__ uint32_t counts[kMaxTeams], totals[kMaxTeams];
  const StreamKey stream = key.stream();
  const Team team(teams.team_size);
  const int64_t first_team = int64_t(blockIdx.x) * team.num_teams;
  const uint32_t size = teams.size, most = visited.most;
  const int64_t num_rounds = walks.length / lists.round;
  Word* const memory = teams.scratch == nullptr ? shared : teams.scratch + first_team * 2 * size;
  const Visits visits{memory + team.number * 2 * size, memory + (team.number * 2 + 1) * size, size};
  uint32_t &count = counts[team.number], &total = totals[team.number];
  const int64_t step_of_grid = int64_t(gridDim.x) * team.num_teams;
  // Teams without a destination come along, since a team may wait for its whole block.
  for (int64_t begin = *hop.first + first_team; begin < *hop.num_dst; begin += step_of_grid) {
    const int64_t dst = begin + team.number;
    const bool exists = dst < *hop.num_dst;
    for (uint32_t i = team.thread; i < size; i += team.size) visits.nodes[i] = 0;
    if (team.thread == 0) count = total = 0;
    team.sync();
    if (exists) {
      const int64_t start = batch.nodes[dst];
      const NodeDraws draws = node_draws(stream, key.step, key.hop, graph.name(start));
      for (int64_t w = team.thread; w < walks.num_walks; w += team.size) {
        int64_t place = w * num_rounds;
        walk(graph, lists, tables, walks, draws, start, w,
             [&](int64_t, int64_t node, bool ends_round) {
               if (!ends_round) return;
               if (include_self != 0 || node != start) visits.nodes[place] = Word(node) + 1;
               ++place;
             });
      }
    }
    team.sync();
    rank_visits(team, visits, [&](int64_t node) { return graph.name(node); });
    for (uint32_t i = team.thread; i < most; i += team.size) {
      if (visits.keys[i] == 0) break;
      atomicAdd(&count, 1u);
      atomicAdd(&total, uint32_t(visits_of(visits.keys[i])));
    }
    team.sync();
    const float unit = normalize != 0 ? float(total) : 1.0f;
    for (uint32_t i = team.thread; i < count; i += team.size) {
      const int64_t at = (dst - *hop.first) * most + i;
      visited.neighbors[at] = Index(visits.nodes[i] - 1);
      visited.weights[at] = __fdiv_rn(float(visits_of(visits.keys[i])), unit);
    }
    if (exists && team.thread == 0) visited.num_edges[dst] = count;
    team.sync();  // the visits are free again
  }
}

//   in   visited                          by visit_most(), and hop.starts of it
//   out  edges.picked, edges.edge_weights
template <class Index>
__global__ void put_visited(Batch batch, Hop hop, Edges<Index> edges, Visited<Index> visited) {
  if (has_failed(batch.error)) return;
  const PickedEdges<Index> picked(batch, hop, edges);
  const int64_t first = *hop.first, num_places = (*hop.num_dst - first) * visited.most;
  for (int64_t at = thread_of_grid(); at < num_places; at += threads_of_grid()) {
    const int64_t dst = first + at / visited.most, j = at % visited.most;
    if (j >= visited.num_edges[dst]) continue;
    picked.put(hop.starts[dst] + j, visited.neighbors[at], -1);
    edges.edge_weights[hop.starts[dst] + j] = visited.weights[at];
  }
}

}  // namespace lg

LG_INSTANTIATE(visit_most<int32_t, uint32_t>)
LG_INSTANTIATE(visit_most<int32_t, int64_t>)
LG_INSTANTIATE(visit_most<int64_t, uint32_t>)
LG_INSTANTIATE(visit_most<int64_t, int64_t>)
LG_INSTANTIATE(put_visited<int32_t>)
LG_INSTANTIATE(put_visited<int64_t>)
