// gather_rows_cuda.cu: rows of a table, of any size, on the device or in mapped memory of the host.
#include "common/cuda/kernel.h"
#include "common/cuda/move_rows.h"

namespace lg {

//   in   table          num_rows rows
//   in   ids[count]     of rows; null: row i is for position i
//   in   positions[count]  distinct rows of out; null: 0, 1, 2, ...
//   out  out            num_out rows; of zeros where an id is none
//   err  kBadId, kBadPosition: at i
template <class Vector>
__global__ void gather_rows(const uint8_t* table, int64_t num_rows, const int64_t* ids,
                            const int64_t* positions, int64_t count, MoveShape shape, uint8_t* out,
                            int64_t num_out, Word* error) {
  const int64_t row_bytes = int64_t(shape.row_vectors) * int64_t(sizeof(Vector));
  for_each_of_warp(count, thread_of_grid() / 32, threads_of_grid() / 32, shape.rows_a_warp,
                   [&](int64_t i) {
                     RowMove move{nullptr, nullptr};
                     if (i >= 0) {
                       const int64_t id = ids != nullptr ? ids[i] : i;
                       const int64_t position = positions != nullptr ? positions[i] : i;
                       if (uint64_t(id) < uint64_t(num_rows)) {
                         move.from = table + id * row_bytes;
                       } else {
                         report(error, kBadId, i);
                       }
                       if (uint64_t(position) < uint64_t(num_out)) {
                         move.to = out + position * row_bytes;
                       } else {
                         report(error, kBadPosition, i);
                       }
                     }
                     move_rows<Vector>(move, shape.row_vectors);
                   });
}

}  // namespace lg

LG_INSTANTIATE(gather_rows<uint4>)
LG_INSTANTIATE(gather_rows<uint2>)
LG_INSTANTIATE(gather_rows<uint32_t>)
LG_INSTANTIATE(gather_rows<uint16_t>)
LG_INSTANTIATE(gather_rows<uint8_t>)
