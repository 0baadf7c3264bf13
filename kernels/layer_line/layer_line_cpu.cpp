#include "layer_line/layer_line.h"

#include <algorithm>

#include "common/signals.h"
#include "sample_layers/draw_waves.h"

namespace lg {
namespace {

WeightUnits units_of(const EdgeWeights& weights, const LineUnits& units) {
  const uint64_t greatest =
      weights.narrow != nullptr ? weight_bits(float(units.greatest)) : weight_bits(units.greatest);
  return WeightUnits(weights, greatest, units.num_edges);
}

}  // namespace

int64_t measure_lists(const LineLists& lists, const LineUnits& units, int64_t* lengths) {
  const WeightUnits counted = units_of(lists.weights, units);
  int64_t num_positive = 0;
  SignalWatch signals;
  for (int64_t i = 0; i < lists.count; ++i) {
    const int64_t end = lists.indptr[lists.rows[i] + 1];
    uint64_t length = 0, greatest = 0;
    for (int64_t edge = lists.indptr[lists.rows[i]]; edge < end; ++edge) {
      const uint64_t bits = lists.weights.bits(edge);
      greatest = std::max(greatest, bits);
      length += counted(bits);
      num_positive += bits > 0;
    }
    lists.weights.check(greatest);
    signals.after(end - lists.indptr[lists.rows[i]]);
    lengths[i] = int64_t(length);
  }
  return num_positive;
}

void find_on_line(const LineLists& lists, const LineUnits& units, const int64_t* places,
                  const LineItems& items) {
  const WeightUnits counted = units_of(lists.weights, units);
  SignalWatch signals;
  for (int64_t i = 0; i < lists.count;) {
    const int64_t row = lists.rows[i], start = lists.indptr[row];
    const int64_t degree = lists.indptr[row + 1] - start;
    signals.after(degree);
    const ListWeights list(lists.weights, start, degree);
    int64_t number = -1;
    uint64_t begin = 0, end = 0;  // of the edge where the pass over the list has come
    for (; i < lists.count && lists.rows[i] == row && uint64_t(places[i]) >= begin; ++i) {
      while (uint64_t(places[i]) >= end) {
        if (++number == degree) {
          fail<SamplerConfigError>("places[", i, "] is ", places[i], ", beyond the ", end,
                                   " units of the list of row ", row, ".");
        }
        begin = end;
        end += counted(lists.weights.bits(start + number));
      }
      items.numbers[i] = number;
      items.begins[i] = int64_t(begin);
      items.lengths[i] = int64_t(end - begin);
      items.weights[i] = double(list[number]);
      items.wholes[i] = double(list.sum());
    }
  }
}

void draw_places(const NodeDraws& draws, uint32_t wave, int64_t length, int64_t count,
                 int64_t* places) {
  const NodeDraws of_wave = draws_of_wave(draws, wave);
  for (int64_t j = 0; j < count; ++j) {
    places[j] = int64_t(draw_below64(of_wave, uint32_t(j), uint64_t(length)));
  }
}

}  // namespace lg
