// visit_key.h: a node and its visits in one number, `count << 48 | (2^48 - 1 - node)`.
//
// Larger numbers come first, by count and then by the smaller id, or, with its name for the node, by
// the smaller name. Nodes and names are below 2^48, counts below 2^16. No number of a node is 0.
#pragma once

#include "common/philox.h"

namespace lg {

constexpr uint64_t kOneVisit = uint64_t(1) << 48, kNode = kOneVisit - 1;

LG_HD uint64_t visit_key(uint32_t count, int64_t node) {
  return count * kOneVisit + (kNode - uint64_t(node));
}
LG_HD int32_t visits_of(uint64_t key) { return int32_t(key >> 48); }

}  // namespace lg
