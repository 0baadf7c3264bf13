// walk_lists.h: which lists random walks leave nodes by.
//
// A walk goes round after round: without types a round is one step, between types it is some steps,
// each along edges of one type. Of both kinds of lists:
//   ptr               list l is indices[ptr[l]] to indices[ptr[l + 1] - 1]
//   round             number of steps; those of a walk are a multiple of it
//   ends_round(t)     whether step t is the last of a round: after these alone a walk may end, or go
//                     on from its start, and PinSAGE counts a visit
//   step(t)(node)     the number of the list by which step t leaves a node
// A device walks by runs alone, and takes whole lists for such: those of one step, 0 + 1 * node.
#pragma once

#include "common/philox.h"

namespace lg {

// A graph's own.
struct WholeLists {
  struct Step {
    int64_t operator()(int64_t node) const { return node; }
  };

  const int64_t* ptr;
  static constexpr int64_t round = 1;

  bool ends_round(int64_t) const { return true; }
  Step step(int64_t) const { return {}; }
};

// Runs. The nodes of a type have consecutive ids and a run each for every edge type that ends there, so
// that two constants a step say which run of a node is of its edge type.
struct RunStep {
  int64_t first, stride;

  LG_HD int64_t operator()(int64_t node) const { return first + node * stride; }
};

template <class Offset>
struct RunLists {
  const Offset* ptr;
  const RunStep* steps;  // of a round
  int64_t round;

  bool ends_round(int64_t t) const { return (t + 1) % round == 0; }
  RunStep step(int64_t t) const { return steps[t % round]; }
};

}  // namespace lg
