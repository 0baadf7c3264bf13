// Walks go as slow and plain ones do, step by step; their most visited nodes make the batches.
#include <map>

#include "fuzz/node_wise.h"
#include "random_walk/random_walk.h"
#include "sample_walks/sample_walks.h"

namespace lg::fuzz {
namespace {

WalkSettings random_walk_settings(Choices& choose, const Exact<AliasEntry>& table) {
  const uint64_t end_below = choose.flag() ? 0 : choose.below((int64_t(1) << 32) + 1);
  const uint64_t restart_below =
      choose.flag() ? end_below : end_below + choose.below((int64_t(1) << 32) + 1 - end_below);
  return {1 + choose.size(12), 1 + choose.size(40), end_below, restart_below,
          table.size() ? table.data() : nullptr};
}

// The nodes that a walk reaches, its start first.
template <class Index>
std::vector<int64_t> wanted_walk(const Csc<Index>& graph, const NodeDraws& draws, int64_t start,
                                 int64_t number, const WalkSettings& settings) {
  std::vector<int64_t> trace{start};
  int64_t place = start;
  for (int64_t t = 0; t < settings.length; ++t) {
    const int64_t first = graph.indptr[place], degree = graph.indptr[place + 1] - first;
    if (degree == 0) break;
    int64_t draw = 4 * (number * ((settings.length + 1) / 2) + t / 2) + 2 * (t % 2);
    if (settings.table) draw = 4 * (number * settings.length + t);
    int64_t position = wanted_draw(draws, draw, degree);
    if (settings.table) {
      const AliasEntry slot = settings.table[first + position];
      if (slot == kNoNeighbor) break;
      const bool keeps = draw_word(draws, uint32_t(draw + 2), 0) < threshold_of(slot);
      position = keeps ? position : alias_of(slot);
    }
    place = graph.indices[first + position];
    trace.push_back(place);
    const uint32_t fate = draw_word(draws, uint32_t(draw + 1), 0);
    if (fate < settings.end_below) break;
    if (fate < settings.restart_below) place = start;
  }
  return trace;
}

template <class Index>
void walk(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const Exact<AliasEntry> table = random_table(choose, graph);
  const Exact<int64_t> starts = random_seeds(choose, graph.num_nodes());
  const WalkSettings settings = random_walk_settings(choose, table);
  const WalkRequest<Index> request{graph.csc(),   starts.data(),      starts.size(),
                                   settings,      choose.wide(),      choose.word(),
                                   choose.word(), choose.word() >> 16};
  const int64_t row = settings.length + 1;
  Exact<int64_t> traces(starts.size() * settings.num_walks * row);
  const Outcome outcome = outcome_of([&] { random_walk(request, traces.data()); });
  const bool sound = std::all_of(starts.begin(), starts.end(),
                                 [&](int64_t start) { return in_range(start, graph.num_nodes()); });
  expect(outcome == (sound ? Outcome::kDone : Outcome::kSeedError), "starts: ", outcome);
  for (int64_t w = 0; sound && w < starts.size() * settings.num_walks; ++w) {
    const int64_t start = starts[w / settings.num_walks];
    const NodeDraws draws = node_draws(stream_key(request.seed, request.epoch), request.step,
                                       request.hop, request.graph.name(start));
    std::vector<int64_t> trace =
        wanted_walk(request.graph, draws, start, w % settings.num_walks, settings);
    trace.resize(size_t(row), -1);
    for (int64_t t = 0; t < row; ++t) {
      expect(traces[w * row + t] == trace[size_t(t)], "walk ", w, " is at ", traces[w * row + t],
             " after step ", t, ", not at ", trace[size_t(t)]);
    }
  }
}

template <class Index>
std::vector<Pick> wanted_visits(const WalkSampleRequest<Index>& request, const NodeDraws& draws,
                                int64_t node) {
  std::map<int64_t, int64_t> visits;
  for (int64_t w = 0; w < request.walks.num_walks; ++w) {
    const std::vector<int64_t> trace = wanted_walk(request.graph, draws, node, w, request.walks);
    for (size_t t = 1; t < trace.size(); ++t) ++visits[trace[t]];
  }
  if (!request.include_self) visits.erase(node);
  std::vector<std::pair<int64_t, int64_t>> top(visits.begin(), visits.end());
  const auto rank = [&](const auto& visited) {
    return std::make_pair(-visited.second, request.graph.name(visited.first));
  };
  std::sort(top.begin(), top.end(),
            [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  top.resize(std::min(top.size(), size_t(request.num_neighbors)));
  int64_t total = 0;
  for (const auto& [neighbor, count] : top) total += count;
  std::vector<Pick> picks;
  for (const auto& [neighbor, count] : top) {
    picks.push_back({neighbor, -1, 0, float(count) / float(request.normalize ? total : 1)});
  }
  return picks;
}

template <class Index>
void sample(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const Exact<AliasEntry> table = random_table(choose, graph);
  Workspace workspace = random_workspace(choose, graph.num_nodes());
  for (int64_t left = choose.between(1, 3); left > 0; --left) {
    WalkSampleRequest<Index> request{{graph.csc(), {}},
                                     random_walk_settings(choose, table),
                                     choose.size(3),
                                     1 + choose.size(50),
                                     choose.flag(),
                                     choose.flag(),
                                     choose.flag() ? Expand::kAll : Expand::kNew};
    request_batch(
        choose, workspace, graph.num_nodes(), size_t(request.num_hops), request.expand,
        {/*ids=*/false, /*weights=*/true, /*types=*/false},
        [&](const BatchRequest& batch) {
          request.batch = batch;
          return sample_walks(workspace, request);
        },
        [&](const BatchRequest& batch, int64_t node, uint32_t hop) {
          const StreamKey key = stream_key(batch.seed, batch.epoch);
          return wanted_visits(
              request, node_draws(key, batch.step, batch.hop + hop, request.graph.name(node)),
              node);
        });
  }
}

}  // namespace

LG_FUZZ_TARGET(random_walk) { choose.flag() ? walk<int32_t>(choose) : walk<int64_t>(choose); }

LG_FUZZ_TARGET(sample_walks) { choose.flag() ? sample<int32_t>(choose) : sample<int64_t>(choose); }

}  // namespace lg::fuzz
