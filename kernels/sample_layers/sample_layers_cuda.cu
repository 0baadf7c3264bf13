// sample_layers_cuda.cu: layer-wise sampling (sample_layers.h), each step over a whole layer at once.
//
// A layer's edges are numbered (layer_edges.h), and those it may take are its items: each an edge, in
// order, with its factor. Of nodes that are drawn the items are all edges; of edges that are drawn,
// these alone (draw_layer/draw_layer_cuda.cu).
#include "common/cuda/adjacency.h"
#include "common/cuda/kernel.h"
#include "common/cuda/node_stamps.h"
#include "common/cuda/scan.h"
#include "importance_tree/importance.h"
#include "sample_layers/budget.h"
#include "sample_layers/layer_edges.h"

namespace lg {

// Numbers the edges into destinations nodes[first] to nodes[num_dst - 1].
//
//   out  offsets[first .. num_dst]
//   out  num_edges
//   out  last_edge                  where they end if all are taken, after first_edge others
//   tmp  words[1 + tiles]           zero
__global__ void measure_layer(const int64_t* indptr, const int64_t* nodes, const int64_t* first,
                              const int64_t* num_dst, const int64_t* first_edge, int64_t* offsets,
                              int64_t* num_edges, int64_t* last_edge, Word* words,
                              const Word* error) {
  if (has_failed(error)) return;
  const int64_t begin = *first, count = *num_dst - begin;
  TileScan scan(words);
  for (int64_t tile = scan.next_tile(); tile == 0 || tile * kScanThreads < count;
       tile = scan.next_tile()) {
    const int64_t i = tile * kScanThreads + threadIdx.x;
    const int64_t node = i < count ? nodes[begin + i] : 0;
    const int64_t degree = i < count ? indptr[node + 1] - indptr[node] : 0;
    const BlockSum sum = block_sum(degree);
    const int64_t before = scan.before(tile, sum.total) + sum.before;
    if (i < count) offsets[begin + i] = before;
    if ((tile + 1) * kScanThreads >= count && threadIdx.x == kScanThreads - 1) {
      *num_edges = offsets[begin + count] = before + degree;
      *last_edge = *first_edge + *num_edges;
    }
  }
}

// All sources of a layer: each occurs after the known nodes.
//   out  sources[num_edges]
template <class Index>
__global__ void list_sources(const int64_t* indptr, const Index* indices, const int64_t* hot_begin,
                             const Index* hot_indices, const int64_t* nodes, const int64_t* first,
                             const int64_t* num_dst, const int64_t* offsets,
                             const int64_t* num_edges, uint32_t* stamps, Word* slots,
                             uint64_t slot_mask, uint32_t batch, uint32_t position_mask,
                             Index* sources, const Word* error) {
  if (has_failed(error)) return;
  const Adjacency<Index> graph{indptr, indices, hot_begin, hot_indices, nullptr};
  const LayerEdges layer{offsets, *first, *num_dst};
  const NodeStamps known{stamps, slots, slot_mask, batch, position_mask};
  for (int64_t edge = thread_of_grid(); edge < *num_edges; edge += threads_of_grid()) {
    const int64_t dst = layer.destination(edge);
    sources[edge] = graph.list(nodes[dst])[edge - offsets[dst]];
    known.occur(int64_t(sources[edge]), *num_dst + edge);
  }
}

// The importance of each source to the destinations; none of known nodes if they are kept anyway.
//   in   candidates[num_edges]   the sources' numbers
//   out  importances             by number; zero before
__global__ void add_importances(const int64_t* first, const int64_t* num_dst,
                                const int64_t* offsets, const int64_t* num_edges,
                                const int32_t* candidates, int32_t keep_known, Word* importances,
                                const Word* error) {
  if (has_failed(error)) return;
  const LayerEdges layer{offsets, *first, *num_dst};
  const ImportanceUnits units(layer.end - layer.first);
  for (int64_t edge = thread_of_grid(); edge < *num_edges; edge += threads_of_grid()) {
    if (keep_known != 0 && candidates[edge] < *num_dst) continue;
    const int64_t degree = layer.degree(layer.destination(edge));
    atomicAdd(importances + candidates[edge], Word(units.of_edge(degree)));
  }
}

// Drawn nodes occur after the known ones.
__global__ void note_drawn(const int64_t* items, int64_t num_drawn, const int64_t* num_dst,
                           uint32_t* stamps, Word* slots, uint64_t slot_mask, uint32_t batch,
                           uint32_t position_mask, const Word* error) {
  if (has_failed(error)) return;
  const NodeStamps known{stamps, slots, slot_mask, batch, position_mask};
  for (int64_t j = thread_of_grid(); j < num_drawn; j += threads_of_grid()) {
    known.occur(items[j], *num_dst + j);
  }
}

// How often each candidate is drawn, and the factor of each time.
//   in   items[num_drawn]        candidates, or what `candidates` numbers, if given; negative: none
//   out  num_times, each_time    by candidate; num_times zero before
__global__ void count_draws(const int64_t* items, const int32_t* candidates, const double* factors,
                            int64_t num_drawn, int32_t* num_times, double* each_time,
                            const Word* error) {
  if (has_failed(error)) return;
  for (int64_t j = thread_of_grid(); j < num_drawn; j += threads_of_grid()) {
    if (items[j] < 0) continue;
    const int64_t candidate = candidates != nullptr ? int64_t(candidates[j]) : items[j];
    atomicAdd(num_times + candidate, 1);
    each_time[candidate] = factors[j];  // the same for all draws of a candidate
  }
}

// The factor of each candidate: added up, draw by draw, as one thread would.
__global__ void weigh_candidates(const int64_t* num_candidates, const int64_t* num_dst,
                                 const Word* num_positive, int64_t budget, int32_t replace,
                                 int32_t keep_known, const int32_t* num_times,
                                 const double* each_time, double* factors, const Word* error) {
  if (has_failed(error)) return;
  const bool all = takes_all(budget, replace != 0, int64_t(*num_positive));
  for (int64_t i = thread_of_grid(); i < *num_candidates; i += threads_of_grid()) {
    double factor = 0;
    for (int32_t time = 0; time < num_times[i]; ++time) factor += each_time[i];
    factors[i] = all || (keep_known != 0 && i < *num_dst) ? 1.0 : factor;
  }
}

// The factor of each edge: of its source, whose number is in `candidates`, if given, or in the table.
template <class Index>
__global__ void weigh_edges(const int64_t* indptr, const Index* indices, const int64_t* hot_begin,
                            const Index* hot_indices, const int64_t* nodes, const int64_t* first,
                            const int64_t* num_dst, const int64_t* offsets,
                            const int64_t* num_edges, const int32_t* candidates, uint32_t* stamps,
                            Word* slots, uint64_t slot_mask, uint32_t batch, uint32_t position_mask,
                            const double* factors, double* edge_factors, const Word* error) {
  if (has_failed(error)) return;
  const Adjacency<Index> graph{indptr, indices, hot_begin, hot_indices, nullptr};
  const LayerEdges layer{offsets, *first, *num_dst};
  const NodeStamps known{stamps, slots, slot_mask, batch, position_mask};
  for (int64_t edge = thread_of_grid(); edge < *num_edges; edge += threads_of_grid()) {
    int32_t candidate;
    if (candidates != nullptr) {
      candidate = candidates[edge];
    } else {
      const int64_t dst = layer.destination(edge);
      candidate = known.find(int64_t(graph.list(nodes[dst])[edge - offsets[dst]]));
    }
    edge_factors[edge] = candidate < 0 ? 0.0 : factors[candidate];
  }
}

// Where each item goes that has a factor.
//   in   factors[num_items]         nullptr: all have
//   out  places[num_items + 1]      the number of such items before
//   out  last_edge                  where they end, after first_edge others
//   tmp  words[1 + tiles]           zero
//   err  kTooManyEdges              more than max_edges
__global__ void place_edges(const double* factors, const int64_t* num_items,
                            const int64_t* first_edge, int64_t max_edges, int32_t* places,
                            int64_t* last_edge, Word* words, Word* error) {
  if (block_has_failed(error)) return;
  const int64_t count = *num_items;
  TileScan scan(words);
  for (int64_t tile = scan.next_tile(); tile == 0 || tile * kScanThreads < count;
       tile = scan.next_tile()) {
    const int64_t i = tile * kScanThreads + threadIdx.x;
    const bool is_kept = i < count && (factors == nullptr || factors[i] != 0.0);
    const BlockSum sum = block_sum(is_kept);
    const int64_t before = scan.before(tile, sum.total) + sum.before;
    if (i < count) places[i] = int32_t(before);
    if ((tile + 1) * kScanThreads >= count && threadIdx.x == kScanThreads - 1) {
      places[count] = int32_t(before + is_kept);
      *last_edge = *first_edge + before + is_kept;
      if (*last_edge > max_edges) report(error, kTooManyEdges, *last_edge);
    }
  }
}

// A warp a destination: where its edges end, and what their factors are divided by.
//   in   numbers[num_items]     the items' edges, ascending; nullptr: item i is edge i
//   out  starts[first .. num_dst], divisors[first .. num_dst - 1]
__global__ void end_rows(const int64_t* first, const int64_t* num_dst, const int64_t* first_edge,
                         const int64_t* offsets, const int64_t* numbers, const double* factors,
                         const int64_t* num_items, const int32_t* places, int32_t normalize,
                         int32_t* starts, double* divisors, const Word* error) {
  if (has_failed(error)) return;
  const int lane = int(threadIdx.x % 32);
  const auto first_item = [&](int64_t edge) {
    if (numbers == nullptr) return edge;
    int64_t low = 0, high = *num_items;  // items below low: edges before; from high on: others
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (numbers[middle] < edge)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  if (thread_of_grid() == 0) starts[*first] = int32_t(*first_edge);
  for (int64_t dst = *first + thread_of_grid() / 32; dst < *num_dst;
       dst += threads_of_grid() / 32) {
    const int64_t begin = first_item(offsets[dst]), end = first_item(offsets[dst + 1]);
    double divisor = double(offsets[dst + 1] - offsets[dst]);
    if (normalize != 0) {
      divisor = 0;  // added up in order, as one thread would
      for (int64_t i = begin; i < end; i += 32) {
        double factor = 0;
        if (i + lane < end) factor = factors == nullptr ? 1.0 : factors[i + lane];
        for (int k = 0; k < 32; ++k) divisor += __shfl_sync(0xffffffffu, factor, k);
      }
    }
    if (lane != 0) continue;
    starts[dst + 1] = int32_t(*first_edge + places[end]);
    divisors[dst] = divisor;
  }
}

// The items that have a factor, to their places.
//   out  picked, edge_ids (may be nullptr), edge_weights
template <class Index>
__global__ void keep_edges(const int64_t* indptr, const Index* indices, const int64_t* hot_begin,
                           const Index* hot_indices, const int64_t* nodes, const int64_t* first,
                           const int64_t* num_dst, const int64_t* first_edge,
                           const int64_t* offsets, const int64_t* numbers, const double* factors,
                           const int64_t* num_items, const int32_t* places, const double* divisors,
                           uint32_t* stamps, Word* slots, uint64_t slot_mask, uint32_t batch,
                           uint32_t position_mask, Index* picked, int64_t* edge_ids,
                           float* edge_weights, const Word* error) {
  if (has_failed(error)) return;
  const Adjacency<Index> graph{indptr, indices, hot_begin, hot_indices, nullptr};
  const LayerEdges layer{offsets, *first, *num_dst};
  const NodeStamps known{stamps, slots, slot_mask, batch, position_mask};
  for (int64_t i = thread_of_grid(); i < *num_items; i += threads_of_grid()) {
    const double factor = factors == nullptr ? 1.0 : factors[i];
    if (factor == 0.0) continue;
    const int64_t number = numbers == nullptr ? i : numbers[i];
    const int64_t dst = layer.destination(number), j = number - offsets[dst];
    const int64_t edge = *first_edge + places[i];
    picked[edge] = graph.list(nodes[dst])[j];
    if (edge_ids != nullptr) edge_ids[edge] = graph.start(nodes[dst]) + j;
    edge_weights[edge] = float(factor / divisors[dst]);
    known.occur(int64_t(picked[edge]), *num_dst + places[i]);
  }
}

}  // namespace lg

LG_INSTANTIATE(measure_layer)
LG_INSTANTIATE(list_sources<int32_t>)
LG_INSTANTIATE(list_sources<int64_t>)
LG_INSTANTIATE(add_importances)
LG_INSTANTIATE(note_drawn)
LG_INSTANTIATE(count_draws)
LG_INSTANTIATE(weigh_candidates)
LG_INSTANTIATE(weigh_edges<int32_t>)
LG_INSTANTIATE(weigh_edges<int64_t>)
LG_INSTANTIATE(place_edges)
LG_INSTANTIATE(end_rows)
LG_INSTANTIATE(keep_edges<int32_t>)
LG_INSTANTIATE(keep_edges<int64_t>)
