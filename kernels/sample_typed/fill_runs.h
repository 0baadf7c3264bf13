// fill_runs.h: chunks of runs (run_positions.h) from destinations whose runs lie by node type (dense_runs.h), by
// vectors: all runs of a destination at once, whatever their number up to eight. Loops over them would end as no
// processor can predict, since nodes of all types come by turns.
#pragma once

#include <cstdint>
#include <vector>

#include "sample_typed/dense_runs.h"
#include "sample_typed/run_positions.h"

namespace lg {

// What the runs of each slot take at a hop (RunRule), in the order of DenseRuns::slot_type.
struct SlotColumns {
  const uint32_t *fanout, *most_whole, *high_hop, *type;
};

class SlotRules {
 public:
  void start(const DenseRuns<uint32_t>& runs, const std::vector<RunRule>& rules) {
    const int64_t num_slots = runs.slot_ptr[runs.num_node_types];
    for (auto& column : columns_) column.assign(size_t(num_slots + kLanesBeyond), 0);
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      const int32_t type = runs.slot_type[slot];
      const RunRule& rule = rules[size_t(type)];
      const uint32_t row[] = {rule.fanout, rule.most_whole, rule.high_hop, uint32_t(type)};
      for (int c = 0; c < 4; ++c) columns_[c][size_t(slot)] = row[c];
    }
  }

  SlotColumns columns() const {
    return {columns_[0].data(), columns_[1].data(), columns_[2].data(), columns_[3].data()};
  }

 private:
  std::vector<uint32_t> columns_[4];
};

// Some destinations, as a batch has them: the number of a query above a node.
struct RunsOf {
  const DenseRuns<uint32_t>& runs;
  SlotColumns rules;
  const int64_t* values;
  int64_t node_mask;       // of a value: the node
  const NodeDraws* draws;  // of each destination, but for the hop
  int size;
};

// Fills an empty chunk until it has no room for the next destination's runs, or many edges; returns how many destinations that
// are. count: of the edges of each of these. No type of nodes has more than kMaxRuns slots.
int fill_runs_avx2(const RunsOf& from, RunChunk& chunk, int64_t* count);
int fill_runs_avx512(const RunsOf& from, RunChunk& chunk, int64_t* count);

}  // namespace lg
