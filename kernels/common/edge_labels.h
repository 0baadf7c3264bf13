// edge_labels.h: the labels of both ends of every edge, in the order of the lists.
#pragma once

#include <algorithm>

#include "common/batch.h"
#include "common/error.h"
#include "common/fetch.h"
#include "common/signals.h"

namespace lg {

// Calls visit(label of a node, labels of some of its in-neighbours, how many), until all were seen. A
// label out of [0, num_labels) is a GraphFormatError: they index memory.
template <class Index, class Visit>
void for_edge_labels(const Csc<Index>& graph, const int32_t* label_of, int64_t num_labels,
                     const Visit& visit) {
  constexpr int64_t kChunk = 64, kAhead = 32;  // edges: labels lie anywhere
  for (int64_t node = 0; node < graph.num_nodes; ++node) {
    if (!in_range(label_of[node], num_labels)) {
      fail<GraphFormatError>("node ", node, " is of number ", label_of[node], ", but there are ",
                             num_labels, ", from 0 on.");
    }
  }
  const int64_t last_edge = graph.indptr[graph.num_nodes] - 1;
  int32_t labels[kChunk];
  SignalWatch signals;
  for (int64_t node = 0; node < graph.num_nodes; ++node) {
    const int64_t end = graph.indptr[node + 1];
    for (int64_t begin = graph.indptr[node]; begin < end; begin += kChunk) {
      const int64_t count = std::min(end - begin, kChunk);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t ahead = std::min(begin + i + kAhead, last_edge);
        fetch_line(&label_of[graph.indices[ahead]]);
        labels[i] = label_of[graph.indices[begin + i]];
      }
      visit(label_of[node], labels, count);
      signals.after(count);
    }
  }
}

}  // namespace lg
