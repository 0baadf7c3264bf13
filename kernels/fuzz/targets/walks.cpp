// Walks go as slow and plain ones do, step by step; their most visited nodes make the batches.
#include <map>

#include "fuzz/node_wise.h"
#include "random_walk/random_walk.h"
#include "sample_walks/sample_walks.h"

namespace lg::fuzz {
namespace {

WalkSettings random_walk_settings(Choices& choose, const Exact<AliasEntry>& table, int64_t round) {
  const uint64_t end_below = choose.flag() ? 0 : choose.below((int64_t(1) << 32) + 1);
  const uint64_t restart_below =
      choose.flag() ? end_below : end_below + choose.below((int64_t(1) << 32) + 1 - end_below);
  return {(1 + choose.size(12 / round)) * round, 1 + choose.size(40), end_below, restart_below,
          table.size() ? table.data() : nullptr};
}

// A graph's own lists.
template <class Lists>
class RandomLists {
 public:
  template <class Index>
  RandomLists(Choices&, const Graph<Index>& graph) : list_ptr(graph.indptr) {}

  WholeLists lists() const { return {list_ptr.data()}; }

  const Exact<int64_t>& list_ptr;
};

// Every list of a graph cut into some runs, and a round of some steps by them.
template <class Offset>
class RandomLists<RunLists<Offset>> {
 public:
  template <class Index>
  RandomLists(Choices& choose, const Graph<Index>& graph)
      : num_slots(choose.between(1, 3)),
        list_ptr(graph.num_nodes() * num_slots + 1),
        offsets(list_ptr.size()),
        steps(choose.between(1, 3)) {
    for (int64_t l = 0; l + 1 < list_ptr.size(); ++l) {
      const int64_t left = graph.indptr[l / num_slots + 1] - list_ptr[l];
      const bool is_last = (l + 1) % num_slots == 0;
      list_ptr[l + 1] = list_ptr[l] + (is_last ? left : choose.below(left + 1));
    }
    std::copy(list_ptr.begin(), list_ptr.end(), offsets.data());
    for (int64_t s = 0; s < steps.size(); ++s) steps[s] = {choose.below(num_slots), num_slots};
  }

  RunLists<Offset> lists() const { return {offsets.data(), steps.data(), steps.size()}; }

  int64_t num_slots;
  Exact<int64_t> list_ptr;
  Exact<Offset> offsets;
  Exact<RunStep> steps;
};

// The nodes that a walk reaches, its start first.
template <class Index, class Lists>
std::vector<int64_t> wanted_walk(const Csc<Index>& graph, const Lists& lists,
                                 const NodeDraws& draws, int64_t start, int64_t number,
                                 const WalkSettings& settings) {
  std::vector<int64_t> trace{start};
  int64_t place = start;
  for (int64_t t = 0; t < settings.length; ++t) {
    const int64_t list = lists.step(t)(place);
    const int64_t first = lists.ptr[list], degree = lists.ptr[list + 1] - lists.ptr[list];
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
    if ((t + 1) % lists.round != 0) continue;
    const uint32_t fate = draw_word(draws, uint32_t(draw + 1), 0);
    if (fate < settings.end_below) break;
    if (fate < settings.restart_below) place = start;
  }
  return trace;
}

template <class Index, class Lists>
void walk(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const RandomLists<Lists> lists(choose, graph);
  const Exact<AliasEntry> table = random_table(choose, lists.list_ptr);
  const Exact<int64_t> starts = random_seeds(choose, graph.num_nodes());
  const WalkSettings settings = random_walk_settings(choose, table, lists.lists().round);
  const WalkRequest<Index, Lists> request{graph.csc(),   lists.lists(), starts.data(),
                                          starts.size(), settings,      choose.wide(),
                                          choose.word(), choose.word(), choose.word() >> 16};
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
        wanted_walk(request.graph, request.lists, draws, start, w % settings.num_walks, settings);
    trace.resize(size_t(row), -1);
    for (int64_t t = 0; t < row; ++t) {
      expect(traces[w * row + t] == trace[size_t(t)], "walk ", w, " is at ", traces[w * row + t],
             " after step ", t, ", not at ", trace[size_t(t)]);
    }
  }
}

template <class Index, class Lists>
std::vector<Pick> wanted_visits(const WalkSampleRequest<Index, Lists>& request,
                                const NodeDraws& draws, int64_t node) {
  std::map<int64_t, int64_t> visits;
  for (int64_t w = 0; w < request.walks.num_walks; ++w) {
    const std::vector<int64_t> trace =
        wanted_walk(request.graph, request.lists, draws, node, w, request.walks);
    const size_t round = size_t(request.lists.round);
    for (size_t t = round; t < trace.size(); t += round) ++visits[trace[t]];
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

template <class Index, class Lists>
void sample(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const RandomLists<Lists> lists(choose, graph);
  const Exact<AliasEntry> table = random_table(choose, lists.list_ptr);
  Workspace workspace = random_workspace(choose, graph.num_nodes());
  for (int64_t left = choose.between(1, 3); left > 0; --left) {
    WalkSampleRequest<Index, Lists> request{
        {graph.csc(), {}},
        lists.lists(),
        random_walk_settings(choose, table, lists.lists().round),
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

template <class Index>
void walk_any(Choices& choose) {
  if (choose.flag()) return walk<Index, WholeLists>(choose);
  choose.flag() ? walk<Index, RunLists<int64_t>>(choose) : walk<Index, RunLists<uint32_t>>(choose);
}

template <class Index>
void sample_any(Choices& choose) {
  if (choose.flag()) return sample<Index, WholeLists>(choose);
  choose.flag() ? sample<Index, RunLists<int64_t>>(choose)
                : sample<Index, RunLists<uint32_t>>(choose);
}

}  // namespace

LG_FUZZ_TARGET(random_walk) {
  choose.flag() ? walk_any<int32_t>(choose) : walk_any<int64_t>(choose);
}

LG_FUZZ_TARGET(sample_walks) {
  choose.flag() ? sample_any<int32_t>(choose) : sample_any<int64_t>(choose);
}

}  // namespace lg::fuzz
