// cut.h: random types of a random graph's nodes, and its lists cut by them.
#pragma once

#include <algorithm>

#include "fuzz/graphs.h"
#include "sample_typed/dense_runs.h"

namespace lg::fuzz {

// A graph whose lists are cut into runs: by types of its nodes, of which each has slots.
template <class Offset>
struct Cut {
  Exact<int64_t> first_node, first_run, slot_ptr;
  Exact<int32_t> slot_type;
  Exact<Offset> run_ptr;
  Exact<int32_t> types;  // of each edge
  Exact<uint32_t> code;  // of each edge
  Exact<uint8_t> timed;

  template <class Index>
  Cut(Choices& choose, const Graph<Index>& graph)
      : Cut(choose, graph, choose.between(1, 4), choose.between(1, 4)) {}

  DenseRuns<Offset> runs(int64_t most_slots) const {
    return {run_ptr.data(),   first_node.data(),     first_run.data(), slot_ptr.data(),
            slot_type.data(), first_node.size() - 1, most_slots};
  }

  int64_t most_slots;

 private:
  template <class Index>
  Cut(Choices& choose, const Graph<Index>& graph, int64_t num_node_types, int64_t slots)
      : first_node(num_node_types + 1),
        first_run(num_node_types + 1),
        slot_ptr(num_node_types + 1),
        slot_type(num_node_types * slots),
        run_ptr(graph.num_nodes() * slots + 1),
        types(graph.indices.size()),
        code(graph.indices.size()),
        timed(num_node_types * slots),
        most_slots(slots) {
    for (int64_t t = 1; t < num_node_types; ++t) first_node[t] = choose.size(graph.num_nodes());
    first_node[num_node_types] = graph.num_nodes();
    std::sort(first_node.data(), first_node.data() + num_node_types);
    for (int64_t t = 0; t <= num_node_types; ++t) {
      first_run[t] = first_node[t] * slots;
      slot_ptr[t] = t * slots;
    }
    for (int64_t k = 0; k < slot_type.size(); ++k) {
      slot_type[k] = int32_t(k);
      timed[k] = choose.flag();
    }
    const uint32_t span = choose.one_of<uint32_t>({2, 50, 0xffffffff});
    for (int64_t e = 0; e < code.size(); ++e) code[e] = choose.word() % span;
    for (int64_t v = 0, t = 0; v < graph.num_nodes(); ++v) {
      while (v >= first_node[t + 1]) ++t;
      int64_t begin = graph.indptr[v];
      for (int64_t s = 0; s < slots; ++s) {
        const int64_t left = graph.indptr[v + 1] - begin;
        const int64_t end = begin + (s + 1 < slots ? choose.size(left) : left);
        run_ptr[v * slots + s + 1] = Offset(end);
        std::fill(types.data() + begin, types.data() + end, int32_t(t * slots + s));
        std::sort(code.data() + begin, code.data() + end);
        begin = end;
      }
    }
  }
};

}  // namespace lg::fuzz
