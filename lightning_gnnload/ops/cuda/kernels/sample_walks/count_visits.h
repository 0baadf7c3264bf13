// count_visits.h: which nodes were visited most often, as visit_counts.h finds them, by the threads of
// a team.
#pragma once

#include "common/cuda/team.h"
#include "sample_walks/visit_key.h"

namespace lg {

// What a team works on: `size` of each, a power of two.
struct Visits {
  Word* nodes;  // 1 + the node of each visit, in any order; 0: none
  Word* keys;
  uint32_t size;
};

// Ranks the nodes: keys[i] is the visit_key() of the i-th, by its name, and nodes[i] 1 + the node; keys
// beyond the last are 0.
template <class NameOf>
__device__ void rank_visits(const Team& team, const Visits& visits, const NameOf& name_of) {
  sort_falling(team, visits.nodes, nullptr, visits.size);
  for (uint32_t i = team.thread; i < visits.size; i += team.size) {
    const Word node = visits.nodes[i];
    visits.keys[i] = 0;
    if (node == 0 || (i > 0 && visits.nodes[i - 1] == node)) continue;
    uint32_t last = i, beyond = visits.size;  // of the visits to this node
    while (beyond - last > 1) {
      const uint32_t middle = last + (beyond - last) / 2;
      (visits.nodes[middle] == node ? last : beyond) = middle;
    }
    visits.keys[i] = visit_key(beyond - i, name_of(int64_t(node - 1)));
  }
  team.sync();
  sort_falling(team, visits.keys, visits.nodes, visits.size);
}

}  // namespace lg
