// sample_walks_cuda.cu: the edges of a hop from the nodes that random walks visit most often, many
// destinations at once: a team of threads (common/cuda/team.h) serves one.
#include "common/cuda/adjacency.h"
#include "common/cuda/kernel.h"
#include "common/cuda/picked_edges.h"
#include "random_walk/walk.h"
#include "sample_walks/count_visits.h"

namespace lg {

constexpr uint32_t kMaxTeams = 128;  // of a block

// The neighbours of destinations nodes[first] to nodes[num_dst - 1], by rows of `most` each.
//
//   in   size                  of a team's Visits: at least length * num_walks, and `most`
//   out  num_edges[dst]        how many destination dst has
//   out  neighbors[dst - first][most], weights
//   tmp  scratch[teams of the grid][2 * size]   nullptr: shared memory of the blocks, as much
template <class Index>
__global__ void __launch_bounds__(1024)
    visit_most(const int64_t* indptr, const Index* indices, const int64_t* hot_begin,
               const Index* hot_indices, const int64_t* names, const int64_t* nodes,
               const int64_t* first, const int64_t* num_dst, int64_t length, int64_t num_walks,
               uint64_t end_below, uint64_t restart_below, uint64_t seed, uint32_t epoch,
               uint32_t step, uint32_t hop, uint32_t most, int32_t include_self, int32_t normalize,
               uint32_t team_size, uint32_t size, Word* scratch, uint32_t* num_edges,
               Index* neighbors, float* weights, const Word* error) {
  if (has_failed(error)) return;
  LG_DYNAMIC_SHARED(Word, shared);
  __shared__ uint32_t counts[kMaxTeams], totals[kMaxTeams];
  const Adjacency<Index> graph{indptr, indices, hot_begin, hot_indices, names};
  const WalkSettings settings{length, num_walks, end_below, restart_below};
  const StreamKey key = stream_key(seed, epoch);
  const Team team(team_size);
  const int64_t first_team = int64_t(blockIdx.x) * team.num_teams;
  Word* const memory = scratch == nullptr ? shared : scratch + first_team * 2 * size;
  const Visits visits{memory + team.number * 2 * size, memory + (team.number * 2 + 1) * size, size};
  uint32_t &count = counts[team.number], &total = totals[team.number];
  const int64_t step_of_grid = int64_t(gridDim.x) * team.num_teams;
  // Teams without a destination come along, since a team may wait for its whole block.
  for (int64_t begin = *first + first_team; begin < *num_dst; begin += step_of_grid) {
    const int64_t dst = begin + team.number;
    const bool exists = dst < *num_dst;
    for (uint32_t i = team.thread; i < size; i += team.size) visits.nodes[i] = 0;
    if (team.thread == 0) count = total = 0;
    team.sync();
    if (exists) {
      const int64_t start = nodes[dst];
      const NodeDraws draws = node_draws(key, step, hop, graph.name(start));
      for (int64_t w = team.thread; w < num_walks; w += team.size) {
        walk(graph, settings, draws, start, w, [&](int64_t t, int64_t node) {
          if (include_self != 0 || node != start) visits.nodes[w * length + t] = Word(node) + 1;
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
      const int64_t at = (dst - *first) * most + i;
      neighbors[at] = Index(visits.nodes[i] - 1);
      weights[at] = __fdiv_rn(float(visits_of(visits.keys[i])), unit);
    }
    if (exists && team.thread == 0) num_edges[dst] = count;
    team.sync();  // the visits are free again
  }
}

//   in   num_edges, neighbors, weights   of visit_most()
//   in   starts                          of them
//   out  picked, edge_weights
template <class Index>
__global__ void put_visited(const int64_t* first, const int64_t* num_dst, const int64_t* first_edge,
                            uint32_t most, const uint32_t* num_edges, const Index* neighbors,
                            const float* weights, const int32_t* starts, uint32_t* stamps,
                            Word* slots, uint64_t slot_mask, uint32_t batch, uint32_t position_mask,
                            Index* picked, float* edge_weights, const Word* error) {
  if (has_failed(error)) return;
  const PickedEdges<Index> edges{
      {stamps, slots, slot_mask, batch, position_mask}, *num_dst - *first_edge, picked, nullptr};
  const int64_t num_places = (*num_dst - *first) * most;
  for (int64_t at = thread_of_grid(); at < num_places; at += threads_of_grid()) {
    const int64_t dst = *first + at / most, j = at % most;
    if (j >= num_edges[dst]) continue;
    edges.put(starts[dst] + j, neighbors[at], -1);
    edge_weights[starts[dst] + j] = weights[at];
  }
}

}  // namespace lg

LG_INSTANTIATE(visit_most<int32_t>)
LG_INSTANTIATE(visit_most<int64_t>)
LG_INSTANTIATE(put_visited<int32_t>)
LG_INSTANTIATE(put_visited<int64_t>)
