// layer.h: the destinations of one hop, and the edges into them as one stream.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/batch.h"
#include "common/fetch.h"
#include "common/prefetch.h"
#include "common/signals.h"

namespace lg {

struct AdjacencyList {
  int64_t start, degree;  // start: in graph.indices
};

template <class Index>
class Layer {
 public:
  Layer(const Csc<Index>& graph, const int64_t* destinations, int64_t count,
        std::vector<AdjacencyList>& lists)
      : graph_(graph), count_(count), lists_(reserve(lists, count)) {
    constexpr int64_t kAhead = 32;
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) prefetch_degree(graph, destinations[i + kAhead]);
      lists_[i].start = graph.indptr[destinations[i]];
      lists_[i].degree = graph.indptr[destinations[i] + 1] - lists_[i].start;
      num_edges_ += lists_[i].degree;
    }
  }

  int64_t num_destinations() const { return count_; }
  int64_t num_edges() const { return num_edges_; }
  AdjacencyList operator[](int64_t destination) const { return lists_[destination]; }

  static constexpr int kBlock = 32;

  // Calls use(neighbors, count) on the sources of all edges in order, up to kBlock at a time, and
  // see(neighbor) on each of them a block earlier.
  template <class See, class Use>
  void for_each_block(const See& see, const Use& use) const {
    Cursor cursor{0, 0};
    int64_t blocks[2][kBlock];
    int size = fill(cursor, blocks[0], see);
    SignalWatch signals;
    for (int current = 0; size > 0; current = 1 - current) {
      const int next = fill(cursor, blocks[1 - current], see);
      use(blocks[current], size);
      signals.after(size);
      size = next;
    }
  }

 private:
  static constexpr int64_t kListsAhead = 6;
  struct Cursor {
    int64_t list, position;
  };

  template <class See>
  int fill(Cursor& cursor, int64_t* block, const See& see) const {
    int size = 0;
    for (; cursor.list < count_; cursor = {cursor.list + 1, 0}) {
      const AdjacencyList list = lists_[cursor.list];
      const Index* neighbors = graph_.indices + list.start + cursor.position;
      const int64_t taken = std::min<int64_t>(list.degree - cursor.position, kBlock - size);
      for (int64_t i = 0; i < taken; ++i) {
        block[size + i] = neighbors[i];
        see(neighbors[i]);
      }
      size += int(taken);
      cursor.position += taken;
      if (size == kBlock) break;
      prefetch_list(cursor.list + kListsAhead);
    }
    return size;
  }

  // Its first lines; the processor foresees the others.
  void prefetch_list(int64_t list) const {
    if (list >= count_) return;
    const char* line = reinterpret_cast<const char*>(graph_.indices + lists_[list].start);
    fetch_line(line);
    fetch_line(line + 64);
  }

  const Csc<Index>& graph_;
  const int64_t count_;
  AdjacencyList* const lists_;
  int64_t num_edges_ = 0;
};

}  // namespace lg
