// bus_order.h: in which order what lies in the host's memory is read over the bus.
//
// Rows at random places come at 45 M a second, whatever their width, and those in the order of their
// places as fast as the line is (an H200). Only the order of reads changes: each item goes where it
// would have gone. Made by order_reads_cuda.cu.
#pragma once

#include "common/cuda/state.h"

namespace lg {

struct BusOrder {
  const Word* entries;          // id << position_bits | position; nullptr: as the items come
  const uint32_t* num_entries;  // on the device
  uint32_t position_bits;

  __device__ int64_t id(int64_t k) const { return int64_t(entries[k] >> position_bits); }
  __device__ int64_t position(int64_t k) const {
    return int64_t(entries[k] & ((Word(1) << position_bits) - 1));
  }
};

}  // namespace lg
