// Of each type no more nodes come than were asked for, each by an edge into those before, and with every
// edge that joins two of them, of its own type.
#include "fuzz/cut.h"
#include "fuzz/induced.h"
#include "fuzz/structure.h"
#include "sample_hgt/sample_hgt.h"
#include "sample_neighbors/fanout.h"

namespace lg::fuzz {
namespace {

template <class Index, class Offset>
void expect_taken(const SampleLayout& layout, const HgtRequest<Index, Offset>& request) {
  const auto* nodes = reinterpret_cast<const int64_t*>(request.batch.arena);
  const int64_t num_types = request.runs.num_node_types;
  std::vector<int64_t> left(size_t(num_types), 0);
  for (size_t i = 0; i < request.num_samples.size(); ++i) {
    left[i % size_t(num_types)] += request.num_samples[i];
  }
  for (int64_t i = request.batch.num_seeds; i < layout.num_nodes; ++i) {
    const int64_t type = request.runs.type_of(nodes[i]);
    expect(left[size_t(type)]-- > 0, "node ", i, " is one too many of type ", type);
  }
}

template <class Index, class Offset>
void expect_types(const SampleLayout& layout, const uint8_t* arena, const Csc<Index>& graph,
                  const Cut<Offset>& cut) {
  const auto* nodes = reinterpret_cast<const int64_t*>(arena);
  for (const HopLayout& hop : layout.hops) {
    const auto* indptr = reinterpret_cast<const int32_t*>(arena + hop.indptr_offset);
    const auto* indices = reinterpret_cast<const int32_t*>(arena + hop.indices_offset);
    const auto* types = reinterpret_cast<const int32_t*>(arena + hop.edge_types_offset);
    for (int64_t dst = 0; dst < hop.num_dst; ++dst) {
      int64_t edge = graph.indptr[nodes[dst]];
      for (int32_t e = indptr[dst]; e < indptr[dst + 1]; ++e, ++edge) {
        while (graph.indices[edge] != nodes[indices[e]]) ++edge;
        expect(types[e] == cut.types[edge], "edge ", e, " is of type ", types[e]);
      }
    }
  }
}

template <class Index, class Offset>
void sample(Choices& choose) {
  const Graph<Index> graph = random_graph<Index>(choose);
  const Cut<Offset> cut(choose, graph);
  Workspace workspace = random_workspace(choose, graph.num_nodes());
  for (int64_t left = choose.between(1, 3); left > 0; --left) {
    HgtRequest<Index, Offset> request{};
    request.graph = graph.csc();
    request.runs = cut.runs(cut.most_slots);
    request.num_hops = choose.size(3);
    request.num_samples.resize(size_t(request.num_hops * request.runs.num_node_types));
    for (int64_t& count : request.num_samples) {
      count = choose.one_of<int64_t>({0, 1, 2, 5, 40, int64_t(1) << 40});
    }
    request.max_neighbors = choose.one_of<int64_t>({kAllNeighbors, 1, 2, 3, 16, 17, 65, 520});
    request.num_layers = 1 + choose.size(4);
    request.edge_ids = choose.flag();
    request_pure_batch(choose, workspace, graph.csc(), size_t(request.num_layers),
                       [&](Workspace& used, const BatchRequest& batch) {
                         request.batch = batch;
                         const SampleLayout layout = sample_hgt(used, request);
                         expect_induced(layout, batch.arena, request.graph);
                         expect_taken(layout, request);
                         expect_types(layout, batch.arena, request.graph, cut);
                         return layout;
                       });
  }
}

template <class Index>
void sample_any_offsets(Choices& choose) {
  choose.flag() ? sample<Index, uint32_t>(choose) : sample<Index, int64_t>(choose);
}

}  // namespace

LG_FUZZ_TARGET(sample_hgt) {
  choose.flag() ? sample_any_offsets<int32_t>(choose) : sample_any_offsets<int64_t>(choose);
}

}  // namespace lg::fuzz
