// pieces.h: where the parts of a batch lie in its slab, told alike on the host and on a device.
#pragma once

#include "common/draw.h"

namespace lg {

constexpr uint64_t kPieceAlignment = 256;

LG_HD uint64_t end_of_piece(uint64_t begin, uint64_t num_bytes) {
  return (begin + num_bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
}

}  // namespace lg
