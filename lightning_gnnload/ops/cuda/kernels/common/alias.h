// alias.h: alias tables: one entry an edge, from which a neighbour is drawn by weight in constant
// time. Built by build_alias/, drawn from by sample_weighted/; integers only.
//
// A node of degree d hands out d * 2^32 shares, 2^32 by each of d slots. Slot i gives its first
// `threshold` shares to neighbour i and the rest to neighbour `alias`, so a uniform slot and a
// uniform 32-bit coin draw each neighbour exactly in proportion to its shares.
//
// What a reader may rely on: threshold 0 means that neighbour i has weight zero, and nothing else;
// all slots of a node whose weights are all zero are kNoNeighbor.
// Source: Walker, "An efficient method for generating discrete random variables with general
// distributions", TOMS 3(3), 1977.
#pragma once

#include "common/draw.h"

namespace lg {

constexpr uint64_t kSlotShares = uint64_t(1) << 32;

// Threshold in the low word, alias, a position in the node's adjacency list, in the high one.
using AliasEntry = uint64_t;

constexpr uint32_t kNobody = 0xffffffffu;  // no position: degrees are below 2^32
constexpr AliasEntry kNoNeighbor = uint64_t(kNobody) << 32;

LG_HD AliasEntry alias_entry(uint32_t threshold, uint32_t alias) {
  return threshold | uint64_t(alias) << 32;
}

// A slot of neighbour i alone: 2^32 shares are one more than a threshold can say.
LG_HD AliasEntry full_entry(uint32_t i) { return alias_entry(0xffffffffu, i); }

LG_HD uint32_t threshold_of(AliasEntry entry) { return uint32_t(entry); }
LG_HD uint32_t alias_of(AliasEntry entry) { return uint32_t(entry >> 32); }

// The neighbour that a coin, uniform in [0, 2^32), draws from slot i. It cannot be predicted, so
// this is arithmetic on a mask and not a branch.
LG_HD uint32_t resolve(AliasEntry entry, uint32_t i, uint32_t coin) {
  const uint32_t keeps = 0 - uint32_t(coin < threshold_of(entry));  // all ones, or 0
  return alias_of(entry) ^ ((alias_of(entry) ^ i) & keeps);
}

}  // namespace lg
