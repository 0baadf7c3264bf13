// sample_layers_cuda.cu: layer-wise sampling (sample_layers.h), each step over a whole layer at once.
//
// Of nodes that are drawn the items (layer_edges.h) are all edges; of edges that are drawn, these
// alone (draw_layer/draw_layer_cuda.cu).
#include "common/cuda/adjacency.h"
#include "common/cuda/kernel.h"
#include "common/cuda/scan.h"
#include "importance_tree/importance.h"
#include "importance_tree/wide_tree.h"
#include "sample_layers/budget.h"
#include "sample_layers/layer_edges.h"

namespace lg {

// Numbers all edges.
//   out  layer.offsets, *layer.num_edges
//   out  *hop.last_edge             where they end if all are taken, after *first_edge others
//   tmp  words[1 + tiles]           zero
__global__ void measure_layer(const int64_t* indptr, Batch batch, Hop hop, Layer layer,
                              Word* words) {
  if (has_failed(batch.error)) return;
  const int64_t begin = *hop.first, count = *hop.num_dst - begin;
  TileScan scan(words);
  for (int64_t tile = scan.next_tile(); tile == 0 || tile * kScanThreads < count;
       tile = scan.next_tile()) {
    const int64_t i = tile * kScanThreads + threadIdx.x;
    const int64_t node = i < count ? batch.nodes[begin + i] : 0;
    const int64_t degree = i < count ? indptr[node + 1] - indptr[node] : 0;
    const BlockSum sum = block_sum(degree);
    const int64_t before = scan.before(tile, sum.total) + sum.before;
    if (i < count) layer.offsets[begin + i] = before;
    if ((tile + 1) * kScanThreads >= count && threadIdx.x == kScanThreads - 1) {
      *layer.num_edges = layer.offsets[begin + count] = before + degree;
      *hop.last_edge = *hop.first_edge + before + degree;
    }
  }
}

// All sources of a layer: each occurs after the known nodes.
//   out  sources[num_edges]
template <class Index>
__global__ void list_sources(Adjacency<Index> graph, Batch batch, Hop hop, Layer layer,
                             Index* sources) {
  if (has_failed(batch.error)) return;
  const LayerEdges edges(hop, layer);
  for (int64_t edge = thread_of_grid(); edge < *layer.num_edges; edge += threads_of_grid()) {
    const int64_t dst = edges.destination(edge);
    sources[edge] = graph.list(batch.nodes[dst])[edge - layer.offsets[dst]];
    batch.known.occur(int64_t(sources[edge]), *hop.num_dst + edge);
  }
}

// The importance of each source to the destinations; none of known nodes if they are kept anyway.
//   in   candidates[num_edges]   the sources' numbers
//   out  importances             by number; zero before
__global__ void add_importances(Batch batch, Hop hop, Layer layer, const int32_t* candidates,
                                int32_t keep_known, Word* importances) {
  if (has_failed(batch.error)) return;
  const LayerEdges edges(hop, layer);
  const ImportanceUnits units(edges.end - edges.first);
  for (int64_t edge = thread_of_grid(); edge < *layer.num_edges; edge += threads_of_grid()) {
    if (keep_known != 0 && candidates[edge] < *hop.num_dst) continue;
    const int64_t degree = edges.degree(edges.destination(edge));
    atomicAdd(importances + candidates[edge], Word(units.of_edge(degree)));
  }
}

// Drawn nodes occur after the known ones.
__global__ void note_drawn(Batch batch, Hop hop, Drawn drawn) {
  if (has_failed(batch.error)) return;
  for (int64_t j = thread_of_grid(); j < drawn.budget; j += threads_of_grid()) {
    batch.known.occur(drawn.items[j], *hop.num_dst + j);
  }
}

// How often each candidate is drawn, and the factor of each time.
//   in   drawn.items             candidates, or what `candidates` numbers, if given; negative: none
//   out  num_times, each_time    by candidate; num_times zero before
__global__ void count_draws(Batch batch, Drawn drawn, const int32_t* candidates, int32_t* num_times,
                            double* each_time) {
  if (has_failed(batch.error)) return;
  for (int64_t j = thread_of_grid(); j < drawn.budget; j += threads_of_grid()) {
    if (drawn.items[j] < 0) continue;
    const int64_t candidate = candidates != nullptr ? int64_t(candidates[j]) : drawn.items[j];
    atomicAdd(num_times + candidate, 1);
    each_time[candidate] = drawn.factors[j];  // the same for all draws of a candidate
  }
}

// The factor of each candidate: added up, draw by draw, as one thread would.
__global__ void weigh_candidates(Batch batch, Hop hop, const int64_t* num_candidates,
                                 const Word* num_positive, int64_t budget, int32_t replace,
                                 int32_t keep_known, const int32_t* num_times,
                                 const double* each_time, double* factors) {
  if (has_failed(batch.error)) return;
  const bool all = takes_all(budget, replace != 0, int64_t(*num_positive));
  for (int64_t i = thread_of_grid(); i < *num_candidates; i += threads_of_grid()) {
    double factor = 0;
    for (int32_t time = 0; time < num_times[i]; ++time) factor += each_time[i];
    factors[i] = all || (keep_known != 0 && i < *hop.num_dst) ? 1.0 : factor;
  }
}

// The factor of each edge: of its source, whose number is in `candidates`, if given, or in the table.
//   out  layer.factors
template <class Index>
__global__ void weigh_edges(Adjacency<Index> graph, Batch batch, Hop hop, Layer layer,
                            const int32_t* candidates, const double* factors) {
  if (has_failed(batch.error)) return;
  const LayerEdges edges(hop, layer);
  for (int64_t edge = thread_of_grid(); edge < *layer.num_edges; edge += threads_of_grid()) {
    int32_t candidate;
    if (candidates != nullptr) {
      candidate = candidates[edge];
    } else {
      const int64_t dst = edges.destination(edge);
      const int64_t node = batch.nodes[dst];
      candidate = batch.known.find(int64_t(graph.list(node)[edge - layer.offsets[dst]]));
    }
    layer.factors[edge] = candidate < 0 ? 0.0 : factors[candidate];
  }
}

// Where each item goes that has a factor.
//   out  layer.places
//   out  *hop.last_edge             where they end, after *first_edge others
//   tmp  words[1 + tiles]           zero
//   err  kTooManyEdges              more than max_edges
__global__ void place_edges(Batch batch, Hop hop, Layer layer, int64_t max_edges, Word* words) {
  if (block_has_failed(batch.error)) return;
  const int64_t count = *layer.num_items;
  const double* factors = layer.factors;
  TileScan scan(words);
  for (int64_t tile = scan.next_tile(); tile == 0 || tile * kScanThreads < count;
       tile = scan.next_tile()) {
    const int64_t i = tile * kScanThreads + threadIdx.x;
    const bool is_kept = i < count && (factors == nullptr || factors[i] != 0.0);
    const BlockSum sum = block_sum(is_kept);
    const int64_t before = scan.before(tile, sum.total) + sum.before;
    if (i < count) layer.places[i] = int32_t(before);
    if ((tile + 1) * kScanThreads >= count && threadIdx.x == kScanThreads - 1) {
      layer.places[count] = int32_t(before + is_kept);
      const int64_t end = *hop.last_edge = *hop.first_edge + before + is_kept;
      if (end > max_edges) report(batch.error, kTooManyEdges, end);
    }
  }
}

// A warp a destination: where its edges end, and what their factors are divided by.
//   out  hop.starts, layer.divisors
__global__ void end_rows(Batch batch, Hop hop, Layer layer, int32_t normalize) {
  if (has_failed(batch.error)) return;
  const int64_t *offsets = layer.offsets, *numbers = layer.numbers;
  const double* factors = layer.factors;
  const int lane = int(threadIdx.x % 32);
  const auto first_item = [&](int64_t edge) {
    if (numbers == nullptr) return edge;
    int64_t low = 0,
            high = *layer.num_items;  // items below low: edges before; from high on: others
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (numbers[middle] < edge)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  if (thread_of_grid() == 0) hop.starts[*hop.first] = int32_t(*hop.first_edge);
  for (int64_t dst = *hop.first + thread_of_grid() / 32; dst < *hop.num_dst;
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
    hop.starts[dst + 1] = int32_t(*hop.first_edge + layer.places[end]);
    layer.divisors[dst] = divisor;
  }
}

// The items that have a factor, to their places.
//   out  edges.picked, edges.edge_ids, edges.edge_weights
template <class Index>
__global__ void keep_edges(Adjacency<Index> graph, Batch batch, Hop hop, Edges<Index> edges,
                           Layer layer) {
  if (has_failed(batch.error)) return;
  const LayerEdges of_layer(hop, layer);
  const PickedEdges<Index> picked(batch, hop, edges);
  for (int64_t i = thread_of_grid(); i < *layer.num_items; i += threads_of_grid()) {
    const double factor = layer.factors == nullptr ? 1.0 : layer.factors[i];
    if (factor == 0.0) continue;
    const int64_t number = layer.numbers == nullptr ? i : layer.numbers[i];
    const int64_t dst = of_layer.destination(number), j = number - layer.offsets[dst];
    const int64_t edge = *hop.first_edge + layer.places[i], node = batch.nodes[dst];
    edges.edge_weights[edge] = float(factor / layer.divisors[dst]);
    picked.put(edge, graph.list(node)[j], graph.start(node) + j);
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
