// step_walks.h: one step of many random walks (random_walk/random_walk.h), wherever each stands.
//
// A walk is told by its start's name and its number, so that those who hold the lists that it passes
// can take its steps in turn: each draws the words that random_walk() would.
#pragma once

#include <cstdint>

#include "common/batch.h"
#include "random_walk/random_walk.h"

namespace lg {

enum WalkFate : uint8_t {
  kGoesOn = 0,    // from the node reached
  kRestarts = 1,  // from its start
  kEnds = 2,      // at the node reached
  kStuck = 3,     // where it stood: there are no in-neighbours, or none of positive weight
};

template <class Index>
struct StepRequest {
  Csc<Index> graph;
  const int64_t* places;   // where the walks stand
  const int64_t* starts;   // names of the nodes they began at
  const int64_t* numbers;  // of the walks of their start
  int64_t count;
  WalkSettings walks;
  int64_t t;  // the step, from 0 to walks.length - 1
  uint64_t seed;
  uint32_t epoch, step, hop;
};

//   out  nodes[count]   that the walks reach, -1 if stuck
//   out  fates[count]   a WalkFate each
// Throws SeedError: a place out of range; SamplerConfigError: a number out of range.
template <class Index>
void step_walks(const StepRequest<Index>& request, int64_t* nodes, uint8_t* fates);

}  // namespace lg
