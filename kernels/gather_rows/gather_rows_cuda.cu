// gather_rows_cuda.cu: rows of a table, of any size, on the device or in mapped memory of the host.
#include "common/cuda/bus_order.h"
#include "common/cuda/kernel.h"
#include "gather_quantized/row_codes.h"

namespace lg {

//   in   table          num_rows rows
//   in   ids[count]     of rows; null: row i is for position i
//   in   order          of all ids, for a table that is read over the bus; or none
//   in   positions[count]  distinct rows of out; null: 0, 1, 2, ...
//   in   columns        of a Format that is not AsBytes
//   out  out            num_out rows in the Format; of what zeros become where an id is none
//   err  kBadId, kBadPosition: at i
template <class Vector, class Format>
__global__ void __launch_bounds__(kMoveThreads)
    gather_rows(const uint8_t* table, int64_t num_rows, const int64_t* ids, BusOrder order,
                const int64_t* positions, int64_t count, MoveShape shape, Columns columns,
                uint8_t* out, int64_t num_out, Word* error) {
  using Convert = RowCodes<Vector, Format>;
  const Convert convert{columns};
  const int64_t row_bytes = int64_t(shape.row_vectors) * int64_t(sizeof(Vector));
  const int64_t out_bytes = int64_t(shape.row_vectors) * int64_t(sizeof(typename Convert::Out));
  for_each_of_warp(count, thread_of_grid() / 32, threads_of_grid() / 32, shape.rows_a_warp,
                   [&](int64_t k) {
                     RowMove move{nullptr, nullptr};
                     if (k >= 0) {
                       const bool is_ordered = order.entries != nullptr;
                       const int64_t i = is_ordered ? order.position(k) : k;
                       const int64_t id = is_ordered ? order.id(k) : ids != nullptr ? ids[i] : i;
                       const int64_t position = positions != nullptr ? positions[i] : i;
                       if (uint64_t(id) < uint64_t(num_rows)) {
                         move.from = table + id * row_bytes;
                       } else {
                         report(error, kBadId, i);
                       }
                       if (uint64_t(position) < uint64_t(num_out)) {
                         move.to = out + position * out_bytes;
                       } else {
                         report(error, kBadPosition, i);
                       }
                     }
                     move_rows<Vector>(move, shape.row_vectors, convert);
                   });
}

}  // namespace lg

LG_INSTANTIATE(gather_rows<uint4, lg::AsBytes>)
LG_INSTANTIATE(gather_rows<uint2, lg::AsBytes>)
LG_INSTANTIATE(gather_rows<uint32_t, lg::AsBytes>)
LG_INSTANTIATE(gather_rows<uint16_t, lg::AsBytes>)
LG_INSTANTIATE(gather_rows<uint8_t, lg::AsBytes>)
LG_INSTANTIATE(gather_rows<uint32_t, lg::Float32>)
LG_INSTANTIATE(gather_rows<uint8_t, lg::Float32>)
LG_INSTANTIATE(gather_rows<uint32_t, lg::Float16>)
LG_INSTANTIATE(gather_rows<uint8_t, lg::Float16>)
LG_INSTANTIATE(gather_rows<uint32_t, lg::BFloat16>)
LG_INSTANTIATE(gather_rows<uint8_t, lg::BFloat16>)
