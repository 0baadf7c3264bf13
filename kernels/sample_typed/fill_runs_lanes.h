// fill_runs_lanes.h: fill_runs() for the instruction set that LG_LANES names (common/lanes.h).
#pragma once

#include <algorithm>

#include "sample_typed/fill_runs.h"
// Last, since it turns vector instructions on.
#include "common/eight_lanes.h"

namespace lg {
namespace {

// kSlots: no type of nodes has more: 4 or 8, so that a node's runs are all in a vector; 0 for any number.
template <int kSlots>
inline int fill_runs_of(const RunsOf& from, RunChunk& chunk, int64_t* count) {
  const DenseRuns<uint32_t> runs = from.runs;  // by value: stores to the chunk could not change it
  const SlotColumns rules = from.rules;
  Eight most_taken = splat8(0), most_drawn = splat8(0);
  int64_t size = 0, num_drawn = 0, num_edges = 0;
  int i = 0;
  for (; i < from.size && num_edges < kManyEdges; ++i) {
    const int64_t node = from.values[i] & from.node_mask, above = from.values[i] - node;
    const int64_t type = runs.type_of(node), slots = runs.slot_ptr[type];
    const int64_t num_slots = runs.slot_ptr[type + 1] - slots;
    if (size + num_slots > kMaxRuns) break;
    const uint32_t* run = runs.runs_of(node, type);
    const NodeDraws& draws = from.draws[i];
    Eight all_taken = splat8(0);
    const auto add_runs = [&](int64_t first) {
      // Lanes beyond the slots are of no edges.
      const int64_t slot = slots + first, left = std::min<int64_t>(num_slots - first, 8);
      const Eight start = load_some<kSlots>(run + first, left);
      const Eight degree = load_some<kSlots>(run + first + 1, left) - start;
      const Eight fanout = load8(rules.fanout + slot);
      const Mask8 draws_some = above8(degree, load8(rules.most_whole + slot));
      const Eight taken = select8(draws_some, fanout, degree);
      const Mask8 kept = above8(taken, splat8(0)), drawn = draws_some & kept;
      all_taken = all_taken + taken;
      most_taken = max8(most_taken, taken);
      most_drawn = max8(most_drawn, select8(drawn, taken, splat8(0)));

      const Order8 of_kept(kept);
      of_kept.put(start, above, chunk.start + size);
      of_kept.put(taken, chunk.count + size);
      of_kept.put(load8(rules.type + slot), chunk.type + size);
      of_kept.put(select8(drawn, splat8(1), splat8(0)), chunk.is_drawn + size);
      size += of_kept.size;

      const Order8 of_drawn(drawn);
      store8(splat8(draws.node_low), chunk.node_low + num_drawn);
      store8(splat8(draws.step), chunk.step + num_drawn);
      of_drawn.put(splat8(draws.node_high_hop) | load8(rules.high_hop + slot),
                   chunk.node_high_hop + num_drawn);
      of_drawn.put(degree, chunk.degree + num_drawn);
      of_drawn.put(fanout, chunk.fanout + num_drawn);
      num_drawn += of_drawn.size;
    };
    add_runs(0);
    if (kSlots == 0) {
      for (int64_t first = 8; first < num_slots; first += 8) add_runs(first);
    }
    num_edges += count[i] = sum8(all_taken);  // below 2^32, as the graph's edges are
  }
  chunk.size = int(size);
  chunk.num_drawn = int(num_drawn);
  chunk.most_taken = largest8(most_taken);
  chunk.most_drawn = largest8(most_drawn);
  return i;
}

inline int fill_runs_lanes(const RunsOf& from, RunChunk& chunk, int64_t* count) {
  if (from.runs.most_slots <= 4) return fill_runs_of<4>(from, chunk, count);
  if (from.runs.most_slots <= 8) return fill_runs_of<8>(from, chunk, count);
  return fill_runs_of<0>(from, chunk, count);
}

}  // namespace
}  // namespace lg
