// sampler.h: what the bindings of all samplers have in common: one input, one form of the result.
#pragma once

#include <nanobind/stl/variant.h>

#include "bind/bind.h"
#include "sample_neighbors/node_wise.h"

namespace lg::bind {

// What ops/dispatch.py makes a SampleLayout of: num_nodes, a HopLayout each, free_begin, free_end,
// queries_offset.
using Hop = nb::typed<nb::tuple, int64_t, nb::ellipsis>;
using Layout = nb::typed<nb::tuple, int64_t, nb::typed<nb::list, Hop>, int64_t, int64_t, int64_t>;

// Runs sample() without the GIL.
template <class Sample>
Layout sampled(const Sample& sample) {
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
  return nb::borrow<Layout>(nb::make_tuple(layout.num_nodes, hops, layout.free_begin,
                                           layout.free_end, layout.queries_offset));
}

// A SamplerInput of either width of indices, with the memory that it points to: ops/inputs.py has
// checked it.
class AnyInput {
 public:
  using Indices = std::variant<Array<const int32_t>, Array<const int64_t>>;

  AnyInput(Workspace& workspace, Array<const int64_t> indptr, Indices indices,
           Array<const int64_t> seeds, uint64_t seed, uint32_t epoch, uint32_t step, uint32_t hop,
           Names names, Bytes arena)
      : batch{seeds.data(), int64_t(seeds.size()), seed, epoch, step, hop,
              arena.data(), int64_t(arena.size())},
        workspace_(workspace),
        indptr_(indptr),
        indices_(indices),
        seeds_(seeds),
        names_(names),
        arena_(arena) {}

  // Runs sample(workspace, SamplerInput) without the GIL.
  template <class Sample>
  Layout sampled(const Sample& sample) const {
    return std::visit([&](const auto& indices) { return sampled_from(indices, sample); }, indices_);
  }

  BatchRequest batch;

 private:
  template <class Index, class Sample>
  Layout sampled_from(const Array<const Index>& indices, const Sample& sample) const {
    const SamplerInput<Index> input{csc(indptr_, indices, names_), batch};
    return bind::sampled([&] { return sample(workspace_, input); });
  }

  Workspace& workspace_;
  Array<const int64_t> indptr_;
  Indices indices_;
  Array<const int64_t> seeds_;
  Names names_;
  Bytes arena_;
};

// A sampler's request: the input, and its own settings.
template <template <class> class Request, class Index, class... Own>
Request<Index> request(const SamplerInput<Index>& input, Own&&... own) {
  return {input, std::forward<Own>(own)...};
}

inline Expand expand(bool expand_new) { return expand_new ? Expand::kNew : Expand::kAll; }

}  // namespace lg::bind
