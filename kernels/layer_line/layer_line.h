// layer_line.h: the line that a layer's edges are drawn from by weight (sample_layers/take_edges.h), where
// its lists lie in many places.
//
// Whoever draws knows how long each list's stretch of the line is, and nothing else of the list; it
// draws places, and asks whoever holds the list what lies there. So a layer is drawn in the two stages
// of DSP (PPoPP'23), section 4.2: first how many of each list, by its total weight, then which.
#pragma once

#include <cstdint>

#include "common/draw.h"
#include "importance_tree/whole_weights.h"

namespace lg {

// In what units the layer's weights are counted (whole_weights.h).
struct LineUnits {
  double greatest;  // of the layer's weights; finite, not negative
  int64_t num_edges;
};

// Some adjacency lists, by their rows in indptr; a row may come repeatedly.
struct LineLists {
  const int64_t* indptr;
  EdgeWeights weights;
  const int64_t* rows;
  int64_t count;
};

// How long the lists' stretches are: lengths[count]. Returns how many of their edges weigh more than 0.
// Throws GraphFormatError: a weight that is negative, infinite or not a number.
int64_t measure_lists(const LineLists& lists, const LineUnits& units, int64_t* lengths);

// What lies at places on the lists' stretches: [count] each.
struct LineItems {
  int64_t* numbers;  // the edge's place in its list
  int64_t* begins;   // where it begins on the stretch
  int64_t* lengths;  // its own length
  double* weights;   // its weight and that of its list, in units of the list
  double* wholes;
};

// Repeated rows cost one pass over their list where they stand together and their places ascend.
// Throws GraphFormatError, as measure_lists; SamplerConfigError: a place beyond its stretch.
void find_on_line(const LineLists& lists, const LineUnits& units, const int64_t* places,
                  const LineItems& items);

// Draws 0 to count - 1 of a wave (sample_layers/draw_waves.h) on what is left of a line, 1 <= length.
void draw_places(const NodeDraws& draws, uint32_t wave, int64_t length, int64_t count,
                 int64_t* places);

}  // namespace lg
