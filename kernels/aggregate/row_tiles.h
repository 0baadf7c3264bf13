// row_tiles.h: rows that are made of rows of another matrix, dealt out to teams of threads: a team is a
// part of a warp, makes a tile of a row's columns, and goes on to further rows.
#pragma once

#include "common/cuda/kernel.h"
#include "common/cuda/state.h"
#include "common/floats.h"

namespace lg {

// For each row of a result, the rows that it is made of (ops/cuda/aggregate.py).
struct RowLists {
  const int32_t* starts;  // [num_rows + 1]
  const int32_t* rows;    // [num_entries]; null: entry e is row e
  int64_t num_rows, num_entries;
  int64_t num_in;  // rows of the other matrix

  // -1: it is none.
  __device__ int64_t row_of(int64_t entry) const {
    const int64_t row = rows != nullptr ? rows[entry] : entry;
    return uint64_t(row) < uint64_t(num_in) ? row : int64_t(-1);
  }
};

// One of the lists. Starts that are none, such as those of a damaged block, index no memory.
struct RowList {
  int64_t begin, end;
  bool is_bad;

  __device__ RowList(const RowLists& lists, int64_t row)
      : begin(lists.starts[row]), end(lists.starts[row + 1]) {
    is_bad = begin < 0 || begin > end || end > lists.num_entries;
    if (is_bad) end = begin;
  }
};

// How columns are dealt out.
struct TileShape {
  int64_t width;   // of rows, in numbers
  uint32_t lanes;  // of a team: a power of two up to 32
  uint32_t tiles;  // of a row
};

// The numbers that a thread moves at once, of up to 16 bytes in one load. Rows begin at multiples of
// their size, as it divides that of a row.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Columns {
  T at[kCount];

  __device__ static Columns load(const T* from) { return *reinterpret_cast<const Columns*>(from); }
  __device__ void store(T* to) const { *reinterpret_cast<Columns*>(to) = *this; }
};

// Loads that are under way at once.
constexpr int kRowsAhead = 4;

__device__ inline int64_t team_of_grid(const TileShape& shape) {
  return thread_of_grid() / shape.lanes;
}
__device__ inline int64_t teams_of_grid(const TileShape& shape) {
  return threads_of_grid() / shape.lanes;
}

// Calls make(row, column) for each row, and the first of each thread's columns of it.
template <int kCount, class Make>
__device__ void for_each_tile(int64_t num_rows, const TileShape& shape, const Make& make) {
  const int64_t lane = threadIdx.x % shape.lanes, num_tiles = num_rows * shape.tiles;
  for (int64_t tile = team_of_grid(shape); tile < num_tiles; tile += teams_of_grid(shape)) {
    const int64_t row = shape.tiles == 1 ? tile : tile / shape.tiles;
    const int64_t column = ((tile - row * shape.tiles) * shape.lanes + lane) * kCount;
    if (column < shape.width) make(row, column);
  }
}

// What a row is where an index was none: nobody waits to be told.
template <class Number>
__device__ inline Number not_a_number() {
  return Number(float_of(0x7fc00000u));
}

}  // namespace lg
