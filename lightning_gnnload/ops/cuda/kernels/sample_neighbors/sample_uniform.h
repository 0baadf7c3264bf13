// sample_uniform.h: uniform choice among the in-neighbours of one destination node.
//
// Without replacement all C(degree, fanout) subsets are equally likely, and the cost does not grow
// with the degree. Draw j is uniform over [0, degree - fanout + j] INCLUSIVE; a position picked
// before is replaced by degree - fanout + j, which no earlier draw could reach.
// Source: Floyd's algorithm; Bentley & Floyd, CACM 30(9), 1987.
#pragma once

#include "common/draw.h"

namespace lg {

//   in   draws, words   the node's draws; words[j] is the first attempt of draw j
//   in   degree         fanout < degree < 2^32
//   in   picked         a set of positions, empty: contains(p), add(p)
//   out  pick[fanout]   distinct positions in [0, degree), in the order of the draws
template <class Set>
LG_HD void sample_without_replacement(const NodeDraws& draws, const uint32_t* words,
                                      uint32_t degree, uint32_t fanout, Set& picked,
                                      uint32_t* pick) {
  for (uint32_t j = 0; j < fanout; ++j) {
    const uint32_t last = degree - fanout + j;
    const uint32_t drawn = draw_below(draws, j, last + 1, words[j]);
    pick[j] = picked.contains(drawn) ? last : drawn;
    picked.add(pick[j]);
  }
}

//   in   degree         1 <= degree < 2^32
//   out  pick[fanout]   independent positions in [0, degree)
LG_HD void sample_with_replacement(const NodeDraws& draws, const uint32_t* words, uint32_t degree,
                                   uint32_t fanout, uint32_t* pick) {
  for (uint32_t j = 0; j < fanout; ++j) pick[j] = draw_below(draws, j, degree, words[j]);
}

}  // namespace lg
