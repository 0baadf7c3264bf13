// copy_pieces_cuda.cu: the parts of a batch from its scratch to one slab of their own, one behind the
// other, each at a multiple of 256 bytes. How long they are is known to the device alone.
#include "common/cuda/kernel.h"
#include "common/cuda/state.h"
#include "copy_pieces/pieces.h"

namespace lg {

// What Python's recorder lays out (ops/cuda/plans/plan.py).
struct Pieces {
  const int64_t* table;  // of each piece its address, item_bytes, word and more: it has
                         // item_bytes * (words[word] + more) bytes, whose number 4 divides
  int32_t num_pieces;
  const Word* words;  // the batch's counters, the first of them its error
};

__device__ inline uint64_t bytes_of_piece(const Pieces& pieces, int32_t i) {
  const int64_t* const piece = pieces.table + 4 * i;
  return uint64_t(piece[1] * (int64_t(pieces.words[piece[2]]) + piece[3]));
}

//   in   begin, end   the slab's room for pieces; nothing is copied where it is too small
//   out  slab
__global__ void copy_pieces(Pieces pieces, uint8_t* slab, uint64_t begin, uint64_t end) {
  if (has_failed(pieces.words)) return;
  uint64_t needed = begin;
  for (int32_t i = 0; i < pieces.num_pieces; ++i) {
    needed = end_of_piece(needed, bytes_of_piece(pieces, i));
  }
  if (needed > end) return;
  uint64_t at = begin;
  for (int32_t i = 0; i < pieces.num_pieces; ++i) {
    const uint64_t num_bytes = bytes_of_piece(pieces, i);
    const auto* const from = reinterpret_cast<const uint8_t*>(uint64_t(pieces.table[4 * i]));
    uint8_t* const to = slab + at;
    const auto num_vectors = int64_t(num_bytes / sizeof(uint4));
    for (int64_t k = thread_of_grid(); k < num_vectors; k += threads_of_grid()) {
      reinterpret_cast<uint4*>(to)[k] = reinterpret_cast<const uint4*>(from)[k];
    }
    const auto tail = int64_t(num_bytes % sizeof(uint4) / sizeof(uint32_t));
    if (thread_of_grid() < tail) {
      const int64_t k = num_vectors * 4 + thread_of_grid();
      reinterpret_cast<uint32_t*>(to)[k] = reinterpret_cast<const uint32_t*>(from)[k];
    }
    at = end_of_piece(at, num_bytes);
  }
}

}  // namespace lg

LG_INSTANTIATE(copy_pieces)
