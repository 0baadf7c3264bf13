// node_wise.h: node-wise sampling: the walk over hops and destinations that all its kinds share.
//
// Destination nodes pass stages, a chunk at a time. Each stage is one chunk behind the one before
// it, so that what it reads at random was prefetched a chunk ago:
//   begin    (picker, if it looks ahead) read degrees, prefetch what the choice depends on
//   pick     (picker) choose positions, prefetch indices[position]
//   read     positions -> neighbours, prefetch their table entries
//   relabel  neighbours -> local ids
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/batch.h"
#include "common/prefetch.h"
#include "sample_neighbors/fanout.h"

namespace lg {

// Destinations in a chunk: so many that it has about kChunkEdges edges. With fewer, what is read was
// prefetched too late; with more, it is pushed out of the first-level cache again.
constexpr int kMaxChunk = 64;
constexpr int64_t kChunkEdges = 256;

enum class Expand {
  kAll,  // every node known so far is a destination of the next hop (DGL)
  kNew,  // only the nodes that the last hop found (PyG)
};

// Some destination nodes on their way through the stages.
struct Chunk {
  int64_t begin = 0;  // destinations nodes[begin] to nodes[begin + size - 1]
  int size = 0;

  // What the picker makes.
  int64_t num_edges = 0;
  int64_t count[kMaxChunk];  // edges of each destination
  std::vector<int64_t>
      values;  // [num_edges] positions in `indices`; `read` makes neighbours of them

  int64_t first_edge = 0;  // edges of the destinations before: where edges.weights and .types go on
};

// Picker:
//   static constexpr bool kLooksAhead
//   int64_t start_hop(uint32_t hop)                returns how many edges a destination may take, or
//                                                  kAllNeighbors
//   void begin(const int64_t* nodes, Chunk&)       if kLooksAhead
//   void pick(Batch&, const int64_t* nodes, Chunk&)
//                                  nodes: the chunk's destinations. Calls batch.check_num_edges()
//                                  before it reserves memory for them.
template <class Batch, class Index, class Picker>
class NodeWise {
 public:
  NodeWise(Batch& batch, const Csc<Index>& graph, Picker& picker, bool edge_ids)
      : batch_(batch),
        graph_(graph),
        picker_(picker),
        edge_ids_(edge_ids),
        chunks_(batch.workspace().template scratch<Chunks>().chunk) {}

  void run(size_t num_hops, Expand expand) {
    int64_t first = 0;  // of the destinations to expand
    for (size_t hop = 0; hop < num_hops; ++hop) {
      const int64_t num_dst = batch_.num_nodes();
      if (expand == Expand::kAll) num_relabelled_ = first = 0;
      run_hop(hop, first, num_dst);
      batch_.end_hop(num_dst, num_relabelled_);
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
  static constexpr int kNumChunks = 4;  // one in each stage
  struct Chunks {
    Chunk chunk[kNumChunks];
  };

  static int destinations_of_chunk(int64_t num_edges) {
    constexpr int kStep = 16;  // as many draws are made at once
    if (num_edges == kAllNeighbors) return kStep;
    const int64_t steps = (kChunkEdges / kStep + num_edges / 2) / std::max<int64_t>(num_edges, 1);
    return int(std::clamp<int64_t>(steps * kStep, kStep, kMaxChunk));
  }

  void run_hop(size_t hop, int64_t first, int64_t end) {
    const int chunk_size = destinations_of_chunk(picker_.start_hop(uint32_t(hop)));
    num_picked_ = num_relabelled_;
    reserve(batch_.edges().indptr, end + 1)[first] = int32_t(num_picked_);
    prefetch_indptr(first, std::min(first + 2 * chunk_size, end));
    const int64_t num_chunks = (end - first + chunk_size - 1) / chunk_size;
    constexpr int64_t kAhead = Picker::kLooksAhead ? 1 : 0;
    const auto chunk = [&](int64_t c) -> Chunk& { return chunks_[c % kNumChunks]; };
    const auto exists = [&](int64_t c) { return c >= 0 && c < num_chunks; };
    for (int64_t c = 0; c < num_chunks + kAhead + 2; ++c) {
      if (exists(c - kAhead - 2)) relabel(chunk(c - kAhead - 2));
      if (exists(c)) {
        const int64_t begin = first + c * chunk_size;
        prefetch_indptr(std::min(begin + 2 * chunk_size, end),
                        std::min(begin + 3 * chunk_size, end));
        chunk(c).begin = begin;
        chunk(c).size = int(std::min<int64_t>(chunk_size, end - begin));
        if constexpr (Picker::kLooksAhead) picker_.begin(batch_.nodes() + begin, chunk(c));
      }
      if (exists(c - kAhead)) pick(chunk(c - kAhead));
      if (exists(c - kAhead - 1)) read(chunk(c - kAhead - 1));
    }
  }

  LG_PREFETCHES void prefetch_indptr(int64_t begin, int64_t end) const {
    const int64_t* nodes = batch_.nodes();
    for (int64_t i = begin; i < end; ++i) __builtin_prefetch(&graph_.indptr[nodes[i]]);
    if (!graph_.names) return;
    for (int64_t i = begin; i < end; ++i) __builtin_prefetch(&graph_.names[nodes[i]]);
  }

  void pick(Chunk& chunk) {
    chunk.first_edge = num_picked_;
    picker_.pick(batch_, batch_.nodes() + chunk.begin, chunk);
    Edges& edges = batch_.edges();
    int32_t* indptr = edges.indptr.data() + chunk.begin + 1;
    for (int i = 0; i < chunk.size; ++i) indptr[i] = int32_t(num_picked_ += chunk.count[i]);
    if (edge_ids_) {
      std::copy_n(chunk.values.data(), chunk.num_edges,
                  reserve(edges.ids, num_picked_) + chunk.first_edge);
    }
  }

  void read(Chunk& chunk) {
    int64_t* values = chunk.values.data();
    for (int64_t i = 0; i < chunk.num_edges; ++i) {
      values[i] = graph_.indices[values[i]];
      batch_.prefetch(values[i]);
    }
  }

  void relabel(const Chunk& chunk) {
    batch_.reserve_nodes(chunk.num_edges);
    const int64_t end = num_relabelled_ + chunk.num_edges;
    int32_t* indices = reserve(batch_.edges().indices, end) + num_relabelled_;
    batch_.add(chunk.values.data(), chunk.num_edges, indices);
    num_relabelled_ = end;
  }

  Batch& batch_;
  const Csc<Index>& graph_;
  Picker& picker_;
  const bool edge_ids_;
  Chunk* chunks_;
  int64_t num_picked_ = 0, num_relabelled_ = 0;  // edges that have passed `pick` and `relabel`
};

}  // namespace lg
