#include "graph/build_runs.h"

#include <algorithm>
#include <array>

#include "common/error.h"
#include "common/huge_array.h"

namespace lg {
namespace {

constexpr int64_t kBlock = 1024;
constexpr int64_t kAhead = 24;  // edges, between the prefetch of a line and its use
constexpr int64_t kFew = 16;    // keys that are sorted by insertion
constexpr int kMostBits = 12;   // buckets, whose ends stay in the first-level cache

// Blocks without a branch inside vectorise; a bad one is then searched for its first bad id.
template <class Id>
void check_block(const EdgeList<Id>& edges, const char* end, const Id* ids, int64_t num_nodes,
                 int64_t from, int64_t to) {
  Id least = 0, greatest = 0;
  for (int64_t e = from; e < to; ++e) {
    least = std::min(least, ids[e]);
    greatest = std::max(greatest, ids[e]);
  }
  if (from == to || (least >= 0 && int64_t(greatest) < num_nodes)) return;
  for (int64_t e = from; e < to; ++e) {
    if (in_range(ids[e], num_nodes)) continue;
    fail<GraphFormatError>(edges.name, ": edge ", e, " has the ", end, " ", ids[e],
                           ", but there are ", num_nodes, " such nodes: ids must lie in [0, ",
                           num_nodes, "). Raise the number of nodes, or remove the edge.");
  }
}

void sort_few(uint64_t* keys, int64_t count) {
  for (int64_t i = 1; i < count; ++i) {
    const uint64_t key = keys[i];
    int64_t at = i;
    for (; at > 0 && keys[at - 1] > key; --at) keys[at] = keys[at - 1];
    keys[at] = key;
  }
}

// Sorts keys that are all different, by about as many buckets as keys at a time: codes of a run
// mostly lie evenly, and comparisons of random keys are guessed wrong half the time.
// Each bucket has fewer bits left to differ in, so this ends whatever the codes are.
void sort_keys(uint64_t* keys, int64_t count, uint64_t* spare) {
  if (count <= kFew) return sort_few(keys, count);
  if (std::is_sorted(keys, keys + count)) return;
  const auto [least, greatest] = std::minmax_element(keys, keys + count);
  const uint64_t low = *least, range = *greatest - low;
  const int range_bits = 64 - __builtin_clzll(range);
  const int bits = std::min({range_bits, kMostBits, 64 - __builtin_clzll(uint64_t(count))});
  const auto bucket = [&](uint64_t key) { return (key - low) >> (range_bits - bits); };

  std::array<uint32_t, (1 << kMostBits) + 1> end;  // where a bucket begins, then where it ends
  std::fill_n(end.begin(), (1 << bits) + 1, 0);
  for (int64_t i = 0; i < count; ++i) ++end[bucket(keys[i]) + 1];
  for (int b = 0; b < 1 << bits; ++b) end[b + 1] += end[b];
  for (int64_t i = 0; i < count; ++i) spare[end[bucket(keys[i])]++] = keys[i];
  std::copy_n(spare, count, keys);
  int64_t begin = 0;
  for (int b = 0; b < 1 << bits; begin = end[b++]) {
    if (end[b] - begin > kFew) sort_keys(keys + begin, end[b] - begin, spare);
  }
  sort_few(keys, count);  // what is left lies within few places of where it belongs
}

// A key an edge, (code, place), run by run.
class Keys {
 public:
  template <class Id>
  Keys(const EdgeList<Id>& edges, const int64_t* begin)
      : keys_(size_t(edges.num_edges)), end_(size_t(edges.num_dst)) {
    uint32_t at = 0;
    for (int64_t v = 0; v < edges.num_dst; ++v) {
      const int64_t* run = &begin[edges.first_run + v * edges.step];
      end_[size_t(v)] = at;
      at += uint32_t(run[1] - run[0]);
    }
    // Where each run begins becomes where it ends, as its keys come.
    for (int64_t e = 0; e < edges.num_edges; ++e) {
      if (e + 2 * kAhead < edges.num_edges) {
        __builtin_prefetch(&end_[size_t(edges.dst[e + 2 * kAhead])], 1);
        __builtin_prefetch(&keys_[end_[size_t(edges.dst[e + kAhead])]], 1);
      }
      keys_[end_[size_t(edges.dst[e])]++] =
          uint64_t(edges.code ? edges.code[e] : 0) << 32 | uint64_t(e);
    }
    if (edges.code) sort(edges.num_dst);
  }

  uint64_t operator[](int64_t i) const { return keys_[size_t(i)]; }

 private:
  void sort(int64_t num_runs) {
    HugeArray<uint64_t> spare(size_t(longest(num_runs)));
    uint64_t* from = keys_.data();
    for (int64_t v = 0; v < num_runs; ++v) {
      uint64_t* to = keys_.data() + end_[size_t(v)];
      sort_keys(from, to - from, spare.data());
      from = to;
    }
  }

  int64_t longest(int64_t num_runs) const {
    int64_t most = 0, from = 0;
    for (int64_t v = 0; v < num_runs; ++v) {
      most = std::max(most, end_[size_t(v)] - from);
      from = end_[size_t(v)];
    }
    return most;
  }

  HugeArray<uint64_t> keys_;
  HugeArray<uint32_t> end_;
};

template <class Bits>
void copy_weight(const void* from, int64_t edge, void* to, int64_t position) {
  static_cast<Bits*>(to)[position] = static_cast<const Bits*>(from)[edge];
}

}  // namespace

template <class Id>
void count_runs(const EdgeList<Id>& edges, int64_t* num_in_run) {
  const auto run = [&](int64_t e) {
    return &num_in_run[edges.first_run + int64_t(edges.dst[e]) * edges.step];
  };
  for (int64_t from = 0; from < edges.num_edges; from += kBlock) {
    const int64_t to = std::min(from + kBlock, edges.num_edges);
    check_block(edges, "source", edges.src, edges.num_src, from, to);
    check_block(edges, "target", edges.dst, edges.num_dst, from, to);
    for (int64_t e = from; e < to; ++e) {
      if (e + kAhead < to) __builtin_prefetch(run(e + kAhead), 1);
      ++*run(e);
    }
  }
}

template <class Id, class Index>
void fill_runs(const EdgeList<Id>& edges, int64_t first_src, const int64_t* begin,
               const RunsOut<Index>& out) {
  const Keys keys(edges, begin);
  int64_t i = 0;
  for (int64_t v = 0; v < edges.num_dst; ++v) {
    const int64_t* run = &begin[edges.first_run + v * edges.step];
    for (int64_t position = run[0]; position < run[1]; ++position, ++i) {
      if (i + kAhead < edges.num_edges) __builtin_prefetch(&edges.src[uint32_t(keys[i + kAhead])]);
      const uint32_t edge = uint32_t(keys[i]);
      out.indices[position] = Index(first_src + edges.src[edge]);
      if (out.edge_time) out.edge_time[position] = uint32_t(keys[i] >> 32);
      if (out.order) out.order[position] = edge;
      if (!edges.weight) continue;
      out.weight_bytes == 4 ? copy_weight<uint32_t>(edges.weight, edge, out.weight, position)
                            : copy_weight<uint64_t>(edges.weight, edge, out.weight, position);
    }
  }
}

template void count_runs(const EdgeList<int32_t>&, int64_t*);
template void count_runs(const EdgeList<int64_t>&, int64_t*);
template void fill_runs(const EdgeList<int32_t>&, int64_t, const int64_t*, const RunsOut<int32_t>&);
template void fill_runs(const EdgeList<int32_t>&, int64_t, const int64_t*, const RunsOut<int64_t>&);
template void fill_runs(const EdgeList<int64_t>&, int64_t, const int64_t*, const RunsOut<int32_t>&);
template void fill_runs(const EdgeList<int64_t>&, int64_t, const int64_t*, const RunsOut<int64_t>&);

}  // namespace lg
