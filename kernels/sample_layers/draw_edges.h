// draw_edges.h: edges of a layer without weights, or of equal ones, drawn uniformly, as sorted
// numbers in [0, num_edges).
//
// With replacement every draw is independent, and a number may come twice. Without it all subsets are
// equally likely. Both as DSP (PPoPP'23, section 4.2) draws them, who first shares the budget out to
// the destinations, by in-degree, and then draws within each: in law the same.
// Source: Floyd's algorithm; Bentley & Floyd, CACM 30(9), 1987.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/draw.h"
#include "common/node_table.h"
#include "common/signals.h"
#include "common/workspace.h"
#include "sample_layers/budget.h"

namespace lg {

struct DrawnEdges {
  HashTable table;
  std::vector<int64_t> numbers;
};

//   1 <= num_edges; without replacement count <= num_edges
//   out  drawn.numbers[count]
inline void draw_edges(int64_t num_edges, int64_t count, bool replace, const NodeDraws& draws,
                       DrawnEdges& drawn) {
  NodeList list{reserve(drawn.numbers, count + 1), 0};
  drawn.table.clear(list);  // of what the call before drew
  SignalWatch signals;
  for (int64_t j = 0; j < count; ++j) {
    signals.after(1);
    const int64_t last = replace ? num_edges - 1 : num_edges - count + j;
    const int64_t number = int64_t(draw_below64(draws, uint32_t(j), uint64_t(last) + 1));
    if (replace) {
      list.ids[list.count++] = number;
    } else if (drawn.table.insert(number, list) < j) {
      drawn.table.insert(last, list);
    }
  }
  std::sort(list.ids, list.ids + count);
}

struct DrawnLayer {
  int64_t count;  // of drawn.numbers
  double factor;  // of each draw
};

// The edges that a layer of num_edges takes, into drawn.numbers. check_count(count) comes before
// memory is reserved for them.
template <class CheckCount>
DrawnLayer draw_layer_edges(int64_t num_edges, int64_t budget, bool replace, const NodeDraws& draws,
                            DrawnEdges& drawn, const CheckCount& check_count) {
  const bool all = takes_all(budget, replace, num_edges);
  const int64_t count = all || num_edges == 0 ? num_edges : budget;
  check_count(count);
  if (all) {
    int64_t* numbers = reserve(drawn.numbers, count);
    std::iota(numbers, numbers + count, int64_t(0));
  } else if (count > 0) {
    draw_edges(num_edges, count, replace, draws, drawn);
  }
  return {count, all ? 1.0 : double(num_edges) / double(count)};
}

}  // namespace lg
