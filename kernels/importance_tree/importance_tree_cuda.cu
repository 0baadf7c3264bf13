// importance_tree_cuda.cu: a wide tree of importances, made level by level, and items drawn from it as
// sample_layers/draw_items.h draws them.
#include "common/cuda/adjacency.h"
#include "common/cuda/batch.h"
#include "common/cuda/kernel.h"
#include "importance_tree/importance.h"
#include "importance_tree/wide_tree.h"
#include "sample_layers/budget.h"
#include "sample_layers/draw_factor.h"

namespace lg {

// The importance of each node to the whole graph: a warp a list.
//   out  importances[num_nodes]   zero before
template <class Index>
__global__ void weigh_nodes(Adjacency<Index> graph, int64_t num_nodes, Word* importances) {
  const ImportanceUnits units(num_nodes);
  for (int64_t dst = thread_of_grid() / 32; dst < num_nodes; dst += threads_of_grid() / 32) {
    const int64_t degree = graph.degree(dst);
    if (degree == 0) continue;
    const Word importance = Word(units.of_edge(degree));
    const Index* list = graph.list(dst);
    for (int64_t j = threadIdx.x % 32; j < degree; j += 32) {
      atomicAdd(importances + list[j], importance);
    }
  }
}

// The next level: entries below[32 i] to below[32 i + 31] make sums[i]; beyond them it is zero.
// Counts entries that are not zero, if asked to: zero before.
__global__ void sum_level(const int64_t* below, int64_t num_below, int64_t* sums, int64_t num_sums,
                          Word* num_positive) {
  const uint32_t warp = 0xffffffffu, lane = threadIdx.x % 32;
  for (int64_t i = thread_of_grid() / 32; i < num_sums; i += threads_of_grid() / 32) {
    int64_t sum = 32 * i + lane < num_below ? below[32 * i + lane] : 0;
    const int num_here = __popc(__ballot_sync(warp, sum != 0));
    for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(warp, sum, bits);
    if (lane != 0) continue;
    sums[i] = sum;
    if (num_positive != nullptr && num_here > 0) atomicAdd(num_positive, Word(num_here));
  }
}

// `budget` items, by a warp each. Without replacement a draw needs those before it: by one warp, and
// the tree loses what is drawn. Where the budget takes all, or there is nothing to draw from, no item
// is drawn: kNoItem.
//
//   in   names                             batch.nodes[0] names the draws (names may be nullptr)
//   out  drawn
constexpr int64_t kNoItem = -1;

// A tree in memory (wide_tree.h): Python's DeviceTree (ops/cuda/sampling/importance.py).
struct TreeMemory {
  uint64_t* entries;
  int64_t num_entries;
  Word* num_positive;  // items of positive importance
};

__global__ void draw_items(Batch batch, DrawKey key, const int64_t* names, TreeMemory tree,
                           int32_t replace, Drawn drawn) {
  if (has_failed(batch.error)) return;
  const int64_t warp = thread_of_grid() / 32, num_warps = threads_of_grid() / 32;
  const bool is_lane_0 = threadIdx.x % 32 == 0;
  const auto put = [&](int64_t j, const WideTree::Item& item, double factor) {
    if (!is_lane_0) return;
    drawn.items[j] = item.number;
    drawn.importances[j] = int64_t(item.importance);
    drawn.factors[j] = factor;
  };
  const int64_t num_items = int64_t(*tree.num_positive), budget = drawn.budget;
  if (num_items == 0 || takes_all(budget, replace != 0, num_items)) {
    for (int64_t j = warp; j < budget; j += num_warps) put(j, {kNoItem, 0}, 0.0);
    return;
  }
  const int64_t first = batch.nodes[0];
  const NodeDraws draws =
      node_draws(key.stream(), key.step, key.hop, names != nullptr ? names[first] : first);
  const WideTree sums(tree.entries, tree.num_entries);
  uint64_t left = sums.total();
  for (int64_t j = warp; j < budget; j += num_warps) {
    const WideTree::Item item = sums.item_at(draw_below64(draws, uint32_t(j), left));
    put(j, item, draw_factor(left, item.importance, j, budget, replace != 0));
    if (replace != 0) continue;
    sums.take_off(item);
    left -= item.importance;
  }
}

// What draw_items() took off.
__global__ void put_back(Batch batch, TreeMemory tree, Drawn drawn) {
  if (has_failed(batch.error)) return;
  const WideTree sums(tree.entries, tree.num_entries);
  for (int64_t j = thread_of_grid(); j < drawn.budget; j += threads_of_grid()) {
    if (drawn.items[j] != kNoItem) sums.put_back({drawn.items[j], uint64_t(drawn.importances[j])});
  }
}

}  // namespace lg

LG_INSTANTIATE(weigh_nodes<int32_t>)
LG_INSTANTIATE(weigh_nodes<int64_t>)
LG_INSTANTIATE(sum_level)
LG_INSTANTIATE(draw_items)
LG_INSTANTIATE(put_back)
