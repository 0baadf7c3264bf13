// move_rows.h: a warp moves rows from anywhere to anywhere, each lane naming one of them.
//
// The rows of a warp are gone over as one sequence of vectors, so that all lanes work whatever the
// width of a row is, and several loads are under way at once. What is read is not kept in the caches,
// as the rows of a batch are distinct; what is written is, for the model reads it next.
#pragma once

#include "common/cuda/state.h"

namespace lg {

constexpr int kMoveThreads = 256;
constexpr int kMoveWarps = kMoveThreads / 32;
constexpr int kVectorsAhead = 4;

// How rows are moved (ops/cuda/tables/rows.py).
struct MoveShape {
  uint32_t row_vectors;  // of a row, fewer than 2^26
  int32_t rows_a_warp;   // at a time, at most 32
};

// What a row of zeros becomes where `from` is null; nothing where `to` is.
struct RowMove {
  const uint8_t* from;
  uint8_t* to;
};

// What a vector of a row becomes: itself. Others have the same members (gather_quantized/row_codes.h).
template <class Vector>
struct AsItIs {
  using Out = Vector;
  __device__ Out operator()(Vector vector, uint32_t) const { return vector; }
};

// Called by all lanes of a warp, in blocks of kMoveThreads. Rows begin at multiples of a vector's size,
// those that are written of what it becomes: convert(vector, its number in the row).
template <class Vector, class Convert = AsItIs<Vector>>
__device__ void move_rows(RowMove move, uint32_t row_vectors, const Convert& convert = {}) {
  using Out = typename Convert::Out;
  __shared__ RowMove moves_of_block[kMoveWarps][32];
  RowMove* const moves = moves_of_block[threadIdx.x / 32];
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t asked = __ballot_sync(0xffffffffu, move.to != nullptr);
  if (move.to != nullptr) moves[__popc(asked & ((1u << lane) - 1u))] = move;
  __syncwarp();
  const uint32_t num_vectors = uint32_t(__popc(asked)) * row_vectors;
  const uint32_t rows_on = 32 / row_vectors, columns_on = 32 % row_vectors;
  uint32_t row = lane / row_vectors, column = lane % row_vectors;
  for (uint32_t next = lane; next < num_vectors;) {
    Vector vectors[kVectorsAhead];
    Out* to[kVectorsAhead];
    uint32_t columns[kVectorsAhead];
    for (int k = 0; k < kVectorsAhead; ++k, next += 32) {
      to[k] = nullptr;
      if (next >= num_vectors) continue;
      const RowMove& taken = moves[row];
      to[k] = reinterpret_cast<Out*>(taken.to) + column;
      columns[k] = column;
      vectors[k] = taken.from == nullptr
                       ? Vector{}
                       : __ldcs(reinterpret_cast<const Vector*>(taken.from) + column);
      row += rows_on;
      column += columns_on;
      if (column >= row_vectors) {
        column -= row_vectors;
        ++row;
      }
    }
    for (int k = 0; k < kVectorsAhead; ++k) {
      if (to[k] != nullptr) *to[k] = convert(vectors[k], columns[k]);
    }
  }
  __syncwarp();  // the next rows may be named
}

// Which items a warp takes: `a_warp` at a time, at most 32, lane by lane, and then those of the warps
// after it, of which there are `num_warps`.
template <class Take>
__device__ void for_each_of_warp(int64_t count, int64_t first_warp, int64_t num_warps,
                                 int32_t a_warp, Take take) {
  const int lane = int(threadIdx.x % 32);
  for (int64_t begin = first_warp * a_warp; begin < count; begin += num_warps * a_warp) {
    const int64_t item = begin + lane;
    take(lane < a_warp && item < count ? item : int64_t(-1));
  }
}

}  // namespace lg
