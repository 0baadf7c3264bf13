#include "bind/bind.h"
#include "layer_line/layer_line.h"
#include "sample_layers/draw_waves.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "measure_lists",
      [](Array<const int64_t> indptr, Weights weights, Array<const int64_t> rows, double greatest,
         int64_t num_edges, Array<int64_t> lengths) {
        const LineLists lists{indptr.data(), edge_weights(weights), rows.data(),
                              int64_t(rows.size())};
        return measure_lists(lists, {greatest, num_edges}, lengths.data());
      },
      "indptr"_a.noconvert(), "weights"_a.noconvert(), "rows"_a.noconvert(), "greatest"_a,
      "num_edges"_a, "lengths"_a.noconvert(), NoGil());
  m.def(
      "find_on_line",
      [](Array<const int64_t> indptr, Weights weights, Array<const int64_t> rows, double greatest,
         int64_t num_edges, Array<const int64_t> places, Array<int64_t> numbers,
         Array<int64_t> begins, Array<int64_t> lengths, Array<double> list_weights,
         Array<double> wholes) {
        const LineLists lists{indptr.data(), edge_weights(weights), rows.data(),
                              int64_t(rows.size())};
        const LineItems items{numbers.data(), begins.data(), lengths.data(), list_weights.data(),
                              wholes.data()};
        find_on_line(lists, {greatest, num_edges}, places.data(), items);
      },
      "indptr"_a.noconvert(), "weights"_a.noconvert(), "rows"_a.noconvert(), "greatest"_a,
      "num_edges"_a, "places"_a.noconvert(), "numbers"_a.noconvert(), "begins"_a.noconvert(),
      "lengths"_a.noconvert(), "list_weights"_a.noconvert(), "wholes"_a.noconvert(), NoGil());
  m.def("places_of_wave", &places_of_wave, "num_missing"_a);
  m.def(
      "draw_places",
      [](uint64_t seed, uint32_t epoch, uint32_t step, uint32_t hop, int64_t name, uint32_t wave,
         int64_t length, Array<int64_t> places) {
        const NodeDraws draws = node_draws(stream_key(seed, epoch), step, hop, name);
        draw_places(draws, wave, length, int64_t(places.size()), places.data());
      },
      "seed"_a, "epoch"_a, "step"_a, "hop"_a, "name"_a, "wave"_a, "length"_a,
      "places"_a.noconvert(), NoGil());
}

}  // namespace lg::bind
