// bind.h: what the bindings of all kernels have in common.
//
// Arrays come as views and are never converted: ops/, the only caller, has checked dtypes and
// layout. Kernels run without the GIL, so a caller must not change an array meanwhile.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "common/alias.h"
#include "common/batch.h"
#include "importance_tree/whole_weights.h"

namespace lg::bind {

namespace nb = nanobind;
using namespace nb::literals;

template <class T>
using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = Array<uint8_t>;
using NoGil = nb::call_guard<nb::gil_scoped_release>;

using Names = std::optional<Array<const int64_t>>;  // of the graph's nodes, by which they draw

template <class Index>
Csc<Index> csc(const Array<const int64_t>& indptr, const Array<const Index>& indices,
               const Names& names = std::nullopt) {
  return {indptr.data(), indices.data(), int64_t(indptr.size()) - 1,
          names ? names->data() : nullptr};
}

// Of a graph's edges, float or double, or none.
using Weights = std::optional<nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>>;

inline EdgeWeights edge_weights(const Weights& weights) {
  if (!weights) return {};
  if (weights->dtype() == nb::dtype<float>()) {
    return {static_cast<const float*>(weights->data()), nullptr};
  }
  return {nullptr, static_cast<const double*>(weights->data())};
}

using Table = std::optional<Array<const AliasEntry>>;  // of a graph's weights, or none

inline const AliasEntry* entries(const Table& table) { return table ? table->data() : nullptr; }

// The views must outlive the request.
inline BatchRequest batch_request(const Array<const int64_t>& seeds, uint64_t seed, uint32_t epoch,
                                  uint32_t step, uint32_t hop, const Bytes& arena,
                                  int64_t max_local = kMaxLocal) {
  return {seeds.data(), int64_t(seeds.size()), seed,     epoch, step, hop,
          arena.data(), int64_t(arena.size()), max_local};
}

// Runs sample() without the GIL; what ops/dispatch.py makes a SampleLayout of.
template <class Sample>
nb::tuple sampled(const Sample& sample) {
  const SampleLayout layout = [&] {
    nb::gil_scoped_release no_gil;
    return sample();
  }();
  nb::list hops;
  for (const HopLayout& hop : layout.hops) {
    hops.append(nb::make_tuple(hop.num_dst, hop.num_src, hop.num_edges, hop.indptr_offset,
                               hop.indices_offset, hop.edge_ids_offset, hop.edge_weights_offset,
                               hop.edge_types_offset));
  }
  return nb::make_tuple(layout.num_nodes, hops, layout.free_begin, layout.free_end);
}

// One for each kernel, defined in KERNEL/KERNEL_bind.cpp.
void bind_add_hop(nb::module_& m);
void bind_breadth_first(nb::module_& m);
void bind_build_alias(nb::module_& m);
void bind_check_csc(nb::module_& m);
void bind_coo_to_csc(nb::module_& m);
void bind_deal_nodes(nb::module_& m);
void bind_draw_layer(nb::module_& m);
void bind_deal_seeds(nb::module_& m);
void bind_gather_mapped(nb::module_& m);
void bind_dynamic_cache(nb::module_& m);
void bind_gather_quantized(nb::module_& m);
void bind_gather_rows(nb::module_& m);
void bind_gather_tiered(nb::module_& m);
void bind_grow_blocks(nb::module_& m);
void bind_importance_tree(nb::module_& m);
void bind_index_edge_types(nb::module_& m);
void bind_join_blocks(nb::module_& m);
void bind_link_blocks(nb::module_& m);
void bind_random_keys(nb::module_& m);
void bind_random_walk(nb::module_& m);
void bind_rank_visits(nb::module_& m);
void bind_round_robin(nb::module_& m);
void bind_read_rows(nb::module_& m);
void bind_sample_layers(nb::module_& m);
void bind_sample_labor(nb::module_& m);
void bind_sample_neighbors(nb::module_& m);
void bind_sample_typed(nb::module_& m);
void bind_sample_walks(nb::module_& m);
void bind_sample_weighted(nb::module_& m);
void bind_sample_shadow(nb::module_& m);
void bind_spread_parts(nb::module_& m);
void bind_step_walks(nb::module_& m);
void bind_settle_nodes(nb::module_& m);
void bind_vote_nodes(nb::module_& m);

}  // namespace lg::bind
