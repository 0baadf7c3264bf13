#include <algorithm>

#include "bind/bind.h"
#include "draw_layer/draw_layer.h"

namespace lg::bind {

// Returns the number of edges: so many entries of `places` and `weights` are written.
LG_BIND(m) {
  m.def(
      "draw_layer",
      [](Array<const int64_t> degrees, int64_t budget, bool replace, bool normalize, uint64_t seed,
         uint32_t epoch, uint32_t step, uint32_t hop, int64_t name, Array<int64_t> counts,
         Array<int64_t> places, Array<float> weights) {
        Edges edges;
        const int64_t num_dst = int64_t(degrees.size());
        draw_layer(
            {degrees.data(), num_dst, budget, replace, normalize, seed, epoch, step, hop, name},
            edges);
        const int32_t* indptr = edges.indptr.data();
        for (int64_t i = 0; i < num_dst; ++i) counts.data()[i] = indptr[i + 1] - indptr[i];
        const int64_t num_edges = indptr[num_dst];
        std::copy_n(edges.ids.data(), num_edges, places.data());
        std::copy_n(edges.weights.data(), num_edges, weights.data());
        return num_edges;
      },
      "degrees"_a.noconvert(), "budget"_a, "replace"_a, "normalize"_a, "seed"_a, "epoch"_a,
      "step"_a, "hop"_a, "name"_a, "counts"_a.noconvert(), "places"_a.noconvert(),
      "weights"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
