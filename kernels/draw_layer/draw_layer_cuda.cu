// draw_layer_cuda.cu: edges of a layer drawn uniformly, as sorted numbers: sample_layers/draw_edges.h,
// a thread a draw; a block puts few in order, and torch many (ops/cuda/sampling/layer.py).
//
// Without replacement draw j of n is over the first E - n + j + 1 edges of E, and takes the last of
// them instead if its own is taken. It is taken if an earlier draw drew the same, or if it is the last
// one of an earlier draw that was replaced: a chain of ever earlier draws, seldom long.
#include "common/cuda/kernel.h"
#include "sample_layers/budget.h"
#include "sample_layers/layer_edges.h"

namespace lg {

constexpr int64_t kNoEdge = int64_t(~uint64_t(0) >> 1);  // behind all edges

// How many numbers are drawn: all edges, where the budget takes them.
__device__ inline int64_t num_numbers(int64_t num_edges, int64_t budget, bool replace) {
  return num_edges == 0 || takes_all(budget, replace, num_edges) ? num_edges : budget;
}

//   out  numbers[budget]   of each draw, as drawn; kNoEdge behind the last
//   out  num_drawn
__global__ void draw_numbers(Batch batch, DrawKey key, const int64_t* names,
                             const int64_t* num_edges, int64_t budget, int32_t replace,
                             int64_t* numbers, int64_t* num_drawn) {
  if (has_failed(batch.error)) return;
  const int64_t edges = *num_edges, count = num_numbers(edges, budget, replace != 0);
  const bool all = takes_all(budget, replace != 0, edges);
  if (thread_of_grid() == 0) *num_drawn = count;
  NodeDraws draws{};
  if (count > 0) {
    const int64_t first = batch.nodes[0];
    draws = node_draws(key.stream(), key.step, key.hop, names != nullptr ? names[first] : first);
  }
  for (int64_t j = thread_of_grid(); j < budget; j += threads_of_grid()) {
    if (j >= count) {
      numbers[j] = kNoEdge;
    } else if (all) {
      numbers[j] = j;
    } else {
      const int64_t last = replace != 0 ? edges - 1 : edges - count + j;
      numbers[j] = int64_t(draw_below64(draws, uint32_t(j), uint64_t(last) + 1));
    }
  }
}

struct NumberedDraw {
  int64_t number;
  int32_t draw;

  __device__ bool is_behind(const NumberedDraw& other) const {
    return number != other.number ? number > other.number : draw > other.draw;
  }
};

// By one block, in shared memory for `size` numbers, a power of two from `count` on.
//   out  sorted[count], draws[count]   the numbers in order, and whose they are: equal ones by draw
// Source: Batcher, "Sorting networks and their applications", AFIPS 1968: bitonic sort.
__global__ void __launch_bounds__(1024)
    sort_numbers(Batch batch, const int64_t* numbers, int32_t count, int32_t size, int64_t* sorted,
                 int64_t* draws) {
  if (block_has_failed(batch.error)) return;
  LG_DYNAMIC_SHARED(int64_t, words);
  auto* const places = reinterpret_cast<int32_t*>(words + size);
  for (auto i = int32_t(threadIdx.x); i < size; i += int32_t(blockDim.x)) {
    words[i] = i < count ? numbers[i] : kNoEdge;
    places[i] = i;
  }
  __syncthreads();
  for (int32_t run = 2; run <= size; run *= 2) {
    for (int32_t step = run / 2; step > 0; step /= 2) {
      for (auto k = int32_t(threadIdx.x); k < size / 2; k += int32_t(blockDim.x)) {
        const int32_t i = 2 * k - k % step, j = i + step;
        const NumberedDraw low{words[i], places[i]}, high{words[j], places[j]};
        // Runs ascend and descend in turn; the last one ascends.
        if (low.is_behind(high) == ((i & run) == 0)) {
          words[i] = high.number;
          places[i] = high.draw;
          words[j] = low.number;
          places[j] = low.draw;
        }
      }
      __syncthreads();
    }
  }
  for (auto i = int32_t(threadIdx.x); i < count; i += int32_t(blockDim.x)) {
    sorted[i] = words[i];
    draws[i] = places[i];
  }
}

// Whether an earlier draw drew the same.
//   in   sorted, draws[num_drawn]   the numbers in order, and whose they are: equal ones by draw
//   out  repeats[num_drawn]
__global__ void mark_repeats(Batch batch, const int64_t* sorted, const int64_t* draws,
                             const int64_t* num_drawn, int32_t* repeats) {
  if (has_failed(batch.error)) return;
  for (int64_t i = thread_of_grid(); i < *num_drawn; i += threads_of_grid()) {
    repeats[draws[i]] = i > 0 && sorted[i] == sorted[i - 1];
  }
}

//   out  settled[budget]   of each draw, distinct
__global__ void settle_numbers(Batch batch, const int64_t* numbers, const int32_t* repeats,
                               const int64_t* num_edges, const int64_t* num_drawn, int64_t budget,
                               int64_t* settled) {
  if (has_failed(batch.error)) return;
  const int64_t count = *num_drawn, base = *num_edges - count;
  for (int64_t j = thread_of_grid(); j < budget; j += threads_of_grid()) {
    int64_t earlier = j;
    while (earlier < count && repeats[earlier] == 0 && numbers[earlier] >= base &&
           numbers[earlier] - base < earlier) {
      earlier = numbers[earlier] - base;
    }
    const bool is_taken = j < count && repeats[earlier] != 0;
    settled[j] = is_taken ? base + j : numbers[j];
  }
}

// The factor of each edge that was drawn, at the first of its draws; 0 at the others.
//   in   layer.numbers   ascending
//   out  layer.factors
__global__ void weigh_numbers(Batch batch, Layer layer, int64_t budget, int32_t replace) {
  if (has_failed(batch.error)) return;
  const int64_t count = *layer.num_items, *numbers = layer.numbers;
  const bool all = takes_all(budget, replace != 0, *layer.num_edges);
  const double each = all ? 1.0 : double(*layer.num_edges) / double(count);
  for (int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    double factor = 0;
    const bool is_first = i == 0 || numbers[i] != numbers[i - 1];
    for (int64_t k = i; is_first && k < count && numbers[k] == numbers[i]; ++k) factor += each;
    layer.factors[i] = factor;
  }
}

}  // namespace lg

LG_INSTANTIATE(draw_numbers)
LG_INSTANTIATE(sort_numbers)
LG_INSTANTIATE(mark_repeats)
LG_INSTANTIATE(settle_numbers)
LG_INSTANTIATE(weigh_numbers)
