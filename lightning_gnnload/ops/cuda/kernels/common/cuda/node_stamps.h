// node_stamps.h: the local id of each node of a batch, in order of first occurrence, found by many
// threads at once.
//
// Every occurrence of a node has a position in the batch: a known node its local id, edge e of a hop
// the number of nodes known before plus e. The least position that a node's stamp is given is its
// first occurrence, whatever the order of threads. A batch's own number, counted down, stands above
// the position in the 32 bits, so that stamps of earlier batches are larger than any of this one, and
// the array is cleared only when numbers run out.
// With `slots` a hash table, whose memory follows the batch, gives a node its stamp.
#pragma once

#include "common/cuda/state.h"

namespace lg {

struct NodeStamps {
  uint32_t* stamps;    // [num_nodes], or [slot_mask + 1] with slots
  Word* slots;         // the nodes in the hash table; kFree: none. nullptr: node v has stamp v.
  uint64_t slot_mask;  // their number - 1, a power of two less one
  uint32_t batch;      // the batch's number, above the positions' bits
  uint32_t position_mask;
  static constexpr Word kFree = ~Word(0);

  // Where the search for a node's stamp begins.
  __device__ uint64_t home(int64_t node) const {
    if (slots == nullptr) return uint64_t(node);
    // Fibonacci hashing: the product's upper bits, on which all of the node's have a bearing.
    return uint64_t(node) * 0x9E3779B97F4A7C15u >> __clzll(int64_t(slot_mask));
  }

  // The place of a node's stamp. The table has room: it is at most half full.
  __device__ uint64_t place(int64_t node) const {
    uint64_t slot = home(node);
    while (slots != nullptr) {
      Word found = __ldcg(slots + slot);
      if (found == kFree) found = atomicCAS(slots + slot, kFree, Word(node));
      if (found == kFree || found == Word(node)) return slot;
      slot = (slot + 1) & slot_mask;
    }
    return slot;
  }

  __device__ uint32_t key(int64_t position) const { return batch | uint32_t(position); }

  // Notes that the node occurs at a position.
  __device__ void occur(int64_t node, int64_t position) const {
    uint32_t* stamp = stamps + place(node);
    // Most occurrences are not the first: a plain read spares them the atomic.
    if (__ldcg(stamp) > key(position)) atomicMin(stamp, key(position));
  }

  // Whether the node occurs here first; all occurrences must have been noted.
  __device__ bool is_first(int64_t node, int64_t position) const {
    return __ldcg(stamps + place(node)) == key(position);
  }

  // Gives a node its local id. It is not above the node's first position, so no other occurrence of
  // the node can take it for its own position, even while others ask is_first().
  __device__ void settle(int64_t node, int64_t local) const {
    atomicExch(stamps + place(node), key(local));
  }

  __device__ int32_t local(int64_t node) const {
    return int32_t(__ldcg(stamps + place(node)) & position_mask);
  }

  // The local id of any node; -1: it has not occurred.
  __device__ int32_t find(int64_t node) const {
    uint64_t slot = home(node);
    if (slots != nullptr) {
      Word found = __ldcg(slots + slot);
      while (found != Word(node)) {
        if (found == kFree) return -1;
        slot = (slot + 1) & slot_mask;
        found = __ldcg(slots + slot);
      }
    }
    const uint32_t stamp = __ldcg(stamps + slot);
    const bool is_known = stamp != ~0u && (stamp & ~position_mask) == batch;
    return is_known ? int32_t(stamp & position_mask) : -1;
  }
};

}  // namespace lg
