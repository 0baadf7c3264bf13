#include "sample_neighbors/sample_neighbors.h"

#include <algorithm>
#include <cstring>

#include "sample_neighbors/draw_words.h"
#include "sample_neighbors/sample_uniform.h"

namespace lg {
namespace {

int64_t align_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
int64_t align_down(int64_t bytes) { return bytes / kAlignment * kAlignment; }

// Destination nodes pass three stages, a chunk at a time. Each stage is one chunk behind the one
// before it, so that what it reads at random was prefetched a chunk ago:
//   pick     read degrees, choose positions, prefetch indices[position]
//   read     positions -> neighbours, prefetch their table entries
//   relabel  neighbours -> local ids
constexpr int kChunk = 16;

constexpr const char* kBeyondInt32 =
    ", beyond int32 local ids. Use a smaller batch or smaller fanouts.";

template <class Table, class Index>
class Sampling {
 public:
  Sampling(Workspace& workspace, Table& table, const SampleRequest<Index>& request)
      : workspace_(workspace),
        table_(table),
        request_(request),
        key_(stream_key(request.seed, request.epoch)),
        nodes_{reinterpret_cast<int64_t*>(request.arena), 0},
        top_(align_down(request.arena_bytes)) {}

  ~Sampling() { table_.clear(nodes_); }

  SampleLayout run() {
    add_seeds();
    int64_t first = 0;  // of the destinations to expand
    for (size_t hop = 0; hop < request_.fanouts.size(); ++hop) {
      const int64_t num_dst = nodes_.count;
      if (request_.expand == Expand::kAll) num_edges_ = first = 0;
      expand(first, num_dst, uint32_t(hop));
      hops_.push_back({num_dst, nodes_.count, num_edges_, 0, 0, -1});
      if (request_.expand == Expand::kAll) write_edges(hops_.size() - 1);
      first = num_dst;
    }
    if (request_.expand == Expand::kNew && !hops_.empty()) write_edges(0);
    return {nodes_.count, std::move(hops_), align_up(nodes_.count * int64_t(sizeof(int64_t))),
            top_};
  }

 private:
  void add_seeds() {
    reserve_nodes(request_.num_seeds);
    for (int64_t i = 0; i < request_.num_seeds; ++i) {
      const int64_t seed = request_.seeds[i];
      if (!in_range(seed, request_.num_nodes)) {
        fail<SeedError>("seeds[", i, "] is ", seed, ", but the graph has ", request_.num_nodes,
                        " nodes: seeds must lie in [0, ", request_.num_nodes, ").");
      }
      const int32_t local = table_.insert(seed, nodes_);
      if (local != i) {
        fail<SeedError>(
            "seeds[", i, "] is ", seed, ", the same node as seeds[", local,
            "]. The seeds of a batch must be distinct: remove repeats, for example with "
            "numpy.unique.");
      }
    }
  }

  void expand(int64_t first, int64_t end, uint32_t hop) {
    fanout_ = request_.fanouts[hop];
    hop_ = hop;
    int32_t* indptr = reserve(workspace_.indptr, end + 1);
    indptr[first] = int32_t(num_edges_);
    num_picked_ = num_edges_;
    prefetch_indptr(first, std::min(first + 2 * kChunk, end));
    const int64_t num_chunks = (end - first + kChunk - 1) / kChunk;
    for (int64_t c = 0; c < num_chunks + 2; ++c) {
      if (c >= 2) relabel(workspace_.chunks[(c - 2) % 3]);
      if (c < num_chunks) {
        const int64_t begin = first + c * kChunk;
        prefetch_indptr(std::min(begin + 2 * kChunk, end), std::min(begin + 3 * kChunk, end));
        pick(begin, int(std::min<int64_t>(kChunk, end - begin)), workspace_.chunks[c % 3]);
      }
      if (c >= 1 && c <= num_chunks) read(workspace_.chunks[(c - 1) % 3]);
    }
  }

  void prefetch_indptr(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) __builtin_prefetch(&request_.indptr[nodes_.ids[i]]);
  }

  void pick(int64_t begin, int size, Chunk& chunk) {
    int64_t start[kChunk], degree[kChunk];
    NodeDraws draws[kChunk];
    int num_drawn = 0;
    chunk.num_edges = 0;
    for (int i = 0; i < size; ++i) {
      const int64_t node = nodes_.ids[begin + i];
      start[i] = request_.indptr[node];
      degree[i] = request_.indptr[node + 1] - start[i];
      draws[num_drawn] = node_draws(key_, request_.step, hop_, node);
      num_drawn += is_drawn(degree[i]);
      chunk.num_edges += is_drawn(degree[i]) ? fanout_ : degree[i];
    }
    if (num_picked_ + chunk.num_edges > request_.max_local) {
      fail<SamplerConfigError>("A batch of ", request_.num_seeds, " seeds reaches more than ",
                               request_.max_local, " edges", kBeyondInt32);
    }
    int64_t* position = reserve(chunk.values, chunk.num_edges);
    int32_t* indptr = reserve(workspace_.indptr, begin + size + 1) + begin + 1;
    const uint32_t num_blocks = num_drawn ? uint32_t((fanout_ + 3) / 4) : 0;
    uint32_t* words = reserve(workspace_.words, int64_t(num_drawn) * num_blocks * 4);
    draw_words(draws, num_drawn, num_blocks, words);

    const NodeDraws* draw = draws;
    for (int i = 0; i < size; ++i) {
      int64_t count = degree[i];
      if (is_drawn(degree[i])) {
        count = fanout_;
        choose(*draw++, words, uint32_t(degree[i]));
        words += num_blocks * 4;
        for (int64_t j = 0; j < count; ++j) position[j] = start[i] + workspace_.pick[j];
      } else {
        for (int64_t j = 0; j < count; ++j) position[j] = start[i] + j;
      }
      for (int64_t j = 0; j < count; ++j) __builtin_prefetch(&request_.indices[position[j]]);
      position += count;
      num_picked_ += count;
      indptr[i] = int32_t(num_picked_);
    }
    if (request_.edge_ids) {
      int64_t* edge_ids = reserve(workspace_.edge_ids, num_picked_) + num_picked_ - chunk.num_edges;
      std::copy_n(chunk.values.data(), chunk.num_edges, edge_ids);
    }
  }

  bool is_drawn(int64_t degree) const {
    if (fanout_ == kAllNeighbors) return false;
    return request_.replace ? degree > 0 : degree > fanout_;
  }

  void choose(const NodeDraws& draws, const uint32_t* words, uint32_t degree) {
    const uint32_t fanout = uint32_t(fanout_);
    uint32_t* pick = reserve(workspace_.pick, fanout);
    if (request_.replace) {
      sample_with_replacement(draws, words, degree, fanout, pick);
    } else if (fanout <= SmallPickedSet::kMaxSize) {
      SmallPickedSet picked;
      sample_without_replacement(draws, words, degree, fanout, picked, pick);
    } else {
      workspace_.large_picked.clear(fanout);
      sample_without_replacement(draws, words, degree, fanout, workspace_.large_picked, pick);
    }
  }

  void read(Chunk& chunk) {
    int64_t* values = chunk.values.data();
    for (int64_t i = 0; i < chunk.num_edges; ++i) {
      values[i] = request_.indices[values[i]];
      table_.prefetch(values[i]);
    }
  }

  void relabel(const Chunk& chunk) {
    reserve_nodes(chunk.num_edges);
    int32_t* indices = reserve(workspace_.indices, num_edges_ + chunk.num_edges) + num_edges_;
    const int64_t* nodes = chunk.values.data();
    for (int64_t i = 0; i < chunk.num_edges; ++i) indices[i] = table_.insert(nodes[i], nodes_);
    num_edges_ += chunk.num_edges;
  }

  // Makes sure that `num_new` nodes fit between the known ones and the hops above.
  void reserve_nodes(int64_t num_new) {
    const int64_t bound = std::min(nodes_.count + num_new, request_.num_nodes);
    if (bound >= request_.max_local) {
      fail<SamplerConfigError>("A batch of ", request_.num_seeds, " seeds reaches ",
                               request_.max_local, " nodes", kBeyondInt32);
    }
    reserve_bytes((bound + 1) * int64_t(sizeof(int64_t)), 0);  // insert writes one beyond the last
  }

  void reserve_bytes(int64_t below, int64_t above) {
    const int64_t needed = align_up(below) + above;
    if (needed > top_) throw ArenaTooSmall{needed + align_down(request_.arena_bytes) - top_};
  }

  // Moves the edges of `first_hop` and later hops into the arena. They grew in the workspace, since
  // their number, and so where they start, is known only now.
  void write_edges(size_t first_hop) {
    const int64_t num_dst = hops_.back().num_dst;
    const int64_t indptr_bytes = (num_dst + 1) * int64_t(sizeof(int32_t));
    const int64_t indices_bytes = num_edges_ * int64_t(sizeof(int32_t));
    const int64_t edge_ids_bytes = request_.edge_ids ? num_edges_ * int64_t(sizeof(int64_t)) : 0;
    const int64_t indptr_span = align_up(indptr_bytes), indices_span = align_up(indices_bytes);
    const int64_t span = indptr_span + indices_span + align_up(edge_ids_bytes);
    reserve_bytes(nodes_.count * int64_t(sizeof(int64_t)), span);
    top_ -= span;
    for (size_t hop = first_hop; hop < hops_.size(); ++hop) {
      hops_[hop].indptr_offset = top_;
      hops_[hop].indices_offset = top_ + indptr_span;
      if (request_.edge_ids) hops_[hop].edge_ids_offset = top_ + indptr_span + indices_span;
    }
    write(top_, workspace_.indptr.data(), indptr_bytes);
    write(top_ + indptr_span, workspace_.indices.data(), indices_bytes);
    write(top_ + indptr_span + indices_span, workspace_.edge_ids.data(), edge_ids_bytes);
  }

  void write(int64_t offset, const void* source, int64_t num_bytes) {
    if (num_bytes > 0) std::memcpy(request_.arena + offset, source, size_t(num_bytes));
  }

  Workspace& workspace_;
  Table& table_;
  const SampleRequest<Index>& request_;
  const StreamKey key_;
  NodeList nodes_;
  int64_t top_;  // start of the hops in the arena
  std::vector<HopLayout> hops_;

  // The hop at work.
  int64_t fanout_ = 0;
  uint32_t hop_ = 0;
  int64_t num_picked_ = 0, num_edges_ = 0;  // edges that have passed `pick` and `relabel`
};

}  // namespace

template <class Index>
SampleLayout sample_neighbors(Workspace& workspace, const SampleRequest<Index>& request) {
  if (workspace.num_nodes < request.num_nodes) {
    fail<SamplerConfigError>("The Workspace is for graphs of ", workspace.num_nodes,
                             " nodes, but this graph has ", request.num_nodes,
                             ". Make a Workspace(num_nodes=", request.num_nodes, ").");
  }
  const Workspace::Lease lease(workspace);
  return std::visit(
      [&](auto& table) {
        return Sampling<std::decay_t<decltype(table)>, Index>(workspace, table, request).run();
      },
      workspace.table);
}

template SampleLayout sample_neighbors(Workspace&, const SampleRequest<int32_t>&);
template SampleLayout sample_neighbors(Workspace&, const SampleRequest<int64_t>&);

}  // namespace lg
