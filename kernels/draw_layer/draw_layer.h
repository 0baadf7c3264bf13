// draw_layer.h: which edges a layer takes, where nothing is known of its lists but their lengths.
//
// The draws and weights of sample_layers' kDsp (sample_layers/sample_layers.h) in a graph without
// weights, apart from the edges' sources: whoever holds a list looks them up. So a layer is drawn
// over lists that lie in many places, in the two stages of DSP (PPoPP'23), section 4.2: first how
// many of each, then which.
#pragma once

#include <cstdint>
#include <vector>

#include "common/workspace.h"
#include "sample_layers/budget.h"

namespace lg {

struct LayerDraw {
  const int64_t* degrees;  // of the destinations
  int64_t num_dst;
  int64_t budget;  // kWholeLayer, or 1 to kMaxDraws64
  bool replace, normalize;
  uint64_t seed;
  uint32_t epoch, step, hop;
  int64_t name;  // of the batch's first seed
};

// The edges of destination i are indptr[i] to indptr[i + 1] - 1: their places in its list, ascending,
// are `ids`, and their weights `weights`.
// Degrees lie in [0, 2^32), and the edges taken are at most kMaxLocal: ops/ has checked both.
void draw_layer(const LayerDraw& request, Edges& edges);

}  // namespace lg
