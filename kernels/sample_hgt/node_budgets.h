// node_budgets.h: which nodes a batch may take next, by type, and what each has been given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/fetch.h"
#include "common/signals.h"
#include "sample_hgt/exponential.h"
#include "sample_hgt/sample_hgt.h"
#include "sample_labor/draw_sources.h"
#include "sample_layers/candidates.h"
#include "sample_typed/run_positions.h"
#include "sample_typed/runs.h"

namespace lg {

struct NodeBudgetsScratch {
  // The in-neighbours of a node by edges of one type.
  struct Run {
    int64_t node, start;
    uint32_t degree;
    int32_t type;
  };
  // A node that may be taken: the least come first.
  struct Ranked {
    double key;
    int64_t node;
    int32_t number;

    bool operator<(const Ranked& other) const {
      return key < other.key || (key == other.key && node < other.node);
    }
  };

  std::vector<int64_t> met;       // the seeds, then candidates: numbered as they are found
  std::vector<uint64_t> budgets;  // by number
  std::vector<std::vector<int32_t>> waiting;  // by node type: the numbers of candidates
  std::vector<Ranked> ranked;
  std::vector<Run> runs;
  std::vector<int64_t> picked;
  RunPositions positions;
  RunChunk group;
};

template <class Batch, class Index, class Offset>
class NodeBudgets {
 public:
  NodeBudgets(Batch& batch, const HgtRequest<Index, Offset>& request)
      : request_(request),
        key_(stream_key(request.batch.seed, request.batch.epoch)),
        scratch_(batch.workspace().template scratch<NodeBudgetsScratch>()),
        candidates_(batch.table(), batch.nodes(), batch.num_nodes(), scratch_.met) {
    std::fill_n(reserve(scratch_.budgets, batch.num_nodes()), batch.num_nodes(), kTaken);
    scratch_.waiting.resize(size_t(request.runs.num_node_types));
    for (auto& waiting : scratch_.waiting) waiting.clear();
  }

  // Nodes that were taken give their in-neighbours budgets for the hop.
  void give(const int64_t* nodes, int64_t count, uint32_t hop) {
    const int64_t num_runs = find_runs(nodes, count);
    const NodeBudgetsScratch::Run* runs = scratch_.runs.data();
    for (int64_t r = 0; r < num_runs;) {
      RunChunkFiller group(scratch_.group, key_, /*replace=*/false);
      int64_t num_edges = 0;
      for (; r < num_runs && group.has_room(1) && num_edges < kGroupEdges; ++r) {
        if (r + kAhead < num_runs) fetch_line(&request_.graph.indices[runs[r + kAhead].start]);
        const uint32_t of_type = typed_hop(first_hop() + hop, runs[r].type);
        num_edges +=
            group.add(node_draws(key_, request_.batch.step, 0, request_.graph.name(runs[r].node)),
                      runs[r].type, RunRule::of(request_.max_neighbors, /*replace=*/false, of_type),
                      runs[r].start, runs[r].degree);
      }
      group.finish();
      give_group(num_edges);
      signals_.after(num_edges);
    }
  }

  // Takes up to `num_samples` nodes of a type at a hop; calls take(node) for each, in no order.
  template <class Take>
  void draw(int64_t type, int64_t num_samples, uint32_t hop, const Take& take) {
    std::vector<int32_t>& waiting = scratch_.waiting[size_t(type)];
    const auto take_number = [&](int32_t number) {
      scratch_.budgets[size_t(number)] = kTaken;
      take(candidates_.node(number));
    };
    const int64_t count = int64_t(waiting.size());
    if (num_samples >= count) {
      for (const int32_t number : waiting) take_number(number);
      waiting.clear();
      return;
    }
    if (num_samples == 0) return;
    NodeBudgetsScratch::Ranked* ranked = rank(waiting, hop);
    std::nth_element(ranked, ranked + num_samples, ranked + count);
    for (int64_t i = 0; i < num_samples; ++i) take_number(ranked[i].number);
    waiting.resize(size_t(count - num_samples));
    for (int64_t i = num_samples; i < count; ++i) {
      waiting[size_t(i - num_samples)] = ranked[i].number;
    }
  }

 private:
  static constexpr uint64_t kTaken = ~uint64_t(0);  // as a budget: none are given any more
  static constexpr uint64_t kOne = uint64_t(1) << 32;
  static constexpr int64_t kGroupEdges = 512, kAhead = 16;

  uint32_t first_hop() const { return request_.batch.hop; }

  // Those that are not empty.
  int64_t find_runs(const int64_t* nodes, int64_t count) {
    int64_t num_runs = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) prefetch_runs(request_.runs, nodes[i + kAhead]);
      NodeBudgetsScratch::Run* runs =
          reserve(scratch_.runs, num_runs + request_.runs.num_runs(nodes[i]) + 1);
      request_.runs.visit(nodes[i], [&](int32_t type, int64_t start, uint32_t degree) {
        runs[num_runs] = {nodes[i], start, degree, type};
        num_runs += degree > 0;
      });
    }
    return num_runs;
  }

  void give_group(int64_t num_edges) {
    const RunChunk& group = scratch_.group;
    int64_t* picked = reserve(scratch_.picked, num_edges + kVectorSlack);
    scratch_.positions.choose(group, picked, /*types=*/nullptr);
    for (int64_t j = 0; j < num_edges; ++j) {
      picked[j] = request_.graph.indices[picked[j]];
      candidates_.prefetch(picked[j]);
    }
    expect(num_edges);
    uint64_t* budgets = scratch_.budgets.data();
    for (int i = 0; i < group.size; ++i) {
      const uint64_t share = kOne / uint64_t(group.count[i]);
      for (uint32_t j = 0; j < group.count[i]; ++j) {
        const int64_t num_met = candidates_.count(), node = *picked++;
        const int32_t number = candidates_.add(node);
        if (number == num_met) {
          budgets[number] = share;
          scratch_.waiting[size_t(request_.runs.type_of(node))].push_back(number);
        } else if (budgets[number] != kTaken) {
          budgets[number] += share;
        }
      }
    }
  }

  // Makes room for so many more candidates, but no more than there are nodes.
  void expect(int64_t num_edges) {
    const int64_t num_new = std::min(num_edges, request_.graph.num_nodes - candidates_.count());
    const int64_t bound = candidates_.count() + num_new;
    if (bound > request_.batch.max_local) {
      fail<SamplerConfigError>("A batch of ", request_.batch.num_seeds,
                               " seeds has budgets for more than ", request_.batch.max_local,
                               " nodes, beyond int32 numbers. Use a smaller batch, or smaller "
                               "num_samples or max_neighbors.");
    }
    candidates_.expect(num_new);
    reserve(scratch_.budgets, bound + 1);
  }

  NodeBudgetsScratch::Ranked* rank(const std::vector<int32_t>& waiting, uint32_t hop) {
    const SourceKey source{key_, request_.batch.step, first_hop() + hop};
    const int64_t count = int64_t(waiting.size());
    NodeBudgetsScratch::Ranked* ranked = reserve(scratch_.ranked, count);
    int64_t nodes[kMaxSourceBlock];
    uint64_t words[kMaxSourceBlock];
    for (int64_t begin = 0; begin < count; begin += kMaxSourceBlock) {
      const int64_t size = std::min(kMaxSourceBlock, count - begin);
      for (int64_t i = 0; i < size; ++i) nodes[i] = candidates_.node(waiting[size_t(begin + i)]);
      draw_sources_of(request_.graph, source, nodes, size, words);
      for (int64_t i = 0; i < size; ++i) {
        const int32_t number = waiting[size_t(begin + i)];
        const double budget = double(scratch_.budgets[size_t(number)]);
        ranked[begin + i] = {exponential(words[i]) / (budget * budget), nodes[i], number};
      }
    }
    return ranked;
  }

  const HgtRequest<Index, Offset>& request_;
  const StreamKey key_;
  NodeBudgetsScratch& scratch_;
  SignalWatch signals_;
  Candidates<std::remove_reference_t<decltype(std::declval<Batch>().table())>> candidates_;
};

}  // namespace lg
