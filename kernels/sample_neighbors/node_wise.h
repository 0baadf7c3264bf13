// node_wise.h: node-wise sampling: the walk over hops and destinations that all its kinds share.
//
// Destination nodes pass two stages, a chunk at a time, the second a chunk behind the first:
//   begin    (picker) read what the choice depends on, or prefetch it
//   pick     (picker) choose positions, which flow on by edges (edge_stream.h)
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/batch.h"
#include "common/fetch.h"
#include "common/prefetch.h"
#include "common/signals.h"
#include "sample_neighbors/edge_stream.h"
#include "sample_neighbors/fanout.h"

namespace lg {

// Destinations in a chunk. While their positions are chosen memory idles, so that they are few; but as
// many as vectors have lanes, unless each draws very many.
constexpr int kMinChunk = 16, kMaxChunk = 128;

// So many that their draws take milliseconds: signals are looked at between chunks.
inline int size_for_draws(int64_t fanout) {
  constexpr int64_t kDraws = int64_t(1) << 20;
  return int(std::clamp<int64_t>(kDraws / std::max<int64_t>(fanout, 1), 1, kMinChunk));
}

enum class Expand {
  kAll,  // every node known so far is a destination of the next hop (DGL)
  kNew,  // only the nodes that the last hop found (PyG)
};

// Some destination nodes on their way through the stages.
struct Chunk {
  int parity;     // 0 or 1: those of the two chunks under way differ
  int64_t begin;  // destinations nodes[begin] to nodes[begin + size - 1]
  int size;
  int64_t first_edge;  // edges of the destinations before: where edges.weights and .types go on

  // What the picker makes.
  int64_t num_edges;
  int64_t count[kMaxChunk];  // edges of each destination
};

// What picking from a node's list depends on first.
struct PrefetchDegree {
  template <class Index>
  LG_PREFETCHES void operator()(const Csc<Index>& graph, int64_t node) const {
    prefetch_degree(graph, node);
    if (graph.names) fetch_line(&graph.names[node]);
  }
};

// Prefetch: (graph, destination), two chunks before it is picked for.
// Picker:
//   void start_hop(uint32_t hop)
//   int chunk_size()                               of the next chunk, at most kMaxChunk
//   void begin(const int64_t* nodes, Chunk&)       nodes: the chunk's destinations
//   void pick(Batch&, EdgeStream&, const int64_t* nodes, Chunk&)
//                                  writes positions where the stream has room for them. Calls
//                                  batch.check_num_edges() before it asks for that room.
//   int64_t most_draws(), num_draws(int64_t node)
//                                  with replacement, at the hop, of any destination and of one: 0
//                                  without, since then neither exceeds the edges that there are
template <class Batch, class Index, class Picker, class Prefetch = PrefetchDegree>
class NodeWise {
 public:
  NodeWise(Batch& batch, const Csc<Index>& graph, Picker& picker, bool edge_ids,
           const Prefetch& prefetch = Prefetch())
      : batch_(batch),
        graph_(graph),
        picker_(picker),
        edge_ids_(edge_ids),
        prefetch_(prefetch),
        stream_(batch, graph) {}

  void run(size_t num_hops, Expand expand) {
    int64_t first = 0;  // of the destinations to expand
    for (size_t hop = 0; hop < num_hops; ++hop) {
      const int64_t num_dst = batch_.num_nodes();
      if (expand == Expand::kAll) num_edges_ = first = 0;
      run_hop(hop, first, num_dst);
      batch_.end_hop(num_dst, num_edges_);
      if (expand == Expand::kAll) batch_.write_edges(hop);
      first = num_dst;
    }
    if (expand == Expand::kNew && num_hops > 0) batch_.write_edges();
  }

  // Only finds the nodes that run() with Expand::kNew would: no hop ends, nothing is written.
  void find_nodes(size_t num_hops) {
    int64_t first = 0;
    for (size_t hop = 0; hop < num_hops; ++hop) {
      const int64_t num_dst = batch_.num_nodes();
      run_hop(hop, first, num_dst);
      first = num_dst;
    }
  }

 private:
  void run_hop(size_t hop, int64_t first, int64_t end) {
    picker_.start_hop(uint32_t(hop));
    check_num_draws(hop, first, end);
    reserve(batch_.edges().indptr, end + 1)[first] = int32_t(num_edges_);
    stream_.start(num_edges_);
    int64_t fetched = first;
    int parity = 0;
    for (int64_t begin = first; begin < end; parity = 1 - parity) {
      Chunk& chunk = chunks_[parity];
      chunk.parity = parity;
      chunk.begin = begin;
      chunk.size = int(std::min<int64_t>(picker_.chunk_size(), end - begin));
      for (; fetched < std::min(begin + 2 * chunk.size, end); ++fetched) {
        prefetch_(graph_, batch_.nodes()[fetched]);
      }
      picker_.begin(batch_.nodes() + begin, chunk);
      if (begin > first) pick(chunks_[1 - parity]);
      begin += chunk.size;
    }
    if (end > first) pick(chunks_[1 - parity]);
    stream_.finish();
  }

  void check_num_draws(size_t hop, int64_t first, int64_t end) const {
    const int64_t most = picker_.most_draws();
    if (most <= kMaxHopDraws / std::max<int64_t>(end - first, 1)) return;
    int64_t all = 0;
    for (int64_t i = first; i < end; ++i) {
      if (__builtin_add_overflow(all, picker_.num_draws(batch_.nodes()[i]), &all)) all = INT64_MAX;
    }
    if (all > kMaxHopDraws) fail_beyond_draws(hop, end - first, all, "neighbours with replacement");
  }

  // A function of its own has the registers that its loops need.
  __attribute__((noinline)) void pick(Chunk& chunk) {
    const int64_t first_edge = chunk.first_edge = num_edges_;
    picker_.pick(batch_, stream_, batch_.nodes() + chunk.begin, chunk);
    Edges& edges = batch_.edges();
    int32_t* indptr = edges.indptr.data() + chunk.begin + 1;
    for (int i = 0; i < chunk.size; ++i) indptr[i] = int32_t(num_edges_ += chunk.count[i]);
    if (edge_ids_) {
      const int64_t* value = stream_.reserve(chunk.num_edges);
      int64_t* id = reserve(edges.ids, num_edges_) + first_edge;
      for (int64_t i = 0; i < chunk.num_edges; ++i) id[i] = batch_.ids().position(value[i]);
    }
    signals_.after(chunk.size + chunk.num_edges);
    stream_.append(chunk.num_edges);
  }

  Batch& batch_;
  const Csc<Index>& graph_;
  Picker& picker_;
  const bool edge_ids_;
  const Prefetch prefetch_;
  EdgeStream<Batch, Index> stream_;
  Chunk chunks_[2];
  int64_t num_edges_ = 0;  // picked
  SignalWatch signals_;
};

}  // namespace lg
