#include "aggregate/max_neighbors.h"
#include "bind/bind.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "max_neighbors",
      [](Array<const int32_t> indptr, Array<const int32_t> indices, Array<const uint8_t> x,
         int64_t num_src, int64_t width, int format, Bytes out, Array<int32_t> from,
         int num_threads) {
        const AggregateRequest request{indptr.data(),     int64_t(indptr.size()) - 1,
                                       indices.data(),    int64_t(indices.size()),
                                       num_src,           width,
                                       RowFormat(format), num_threads};
        max_neighbors(request, x.data(), out.data(), from.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "x"_a.noconvert(), "num_src"_a, "width"_a,
      "format"_a, "out"_a.noconvert(), "source"_a.noconvert(), "num_threads"_a, NoGil());
  m.def(
      "add_to_sources",
      [](Array<const int32_t> from, Array<const uint8_t> grad, Bytes into, int64_t num_dst,
         int64_t num_src, int64_t width, int format, int num_threads) {
        add_to_sources(from.data(), grad.data(), into.data(), num_dst, num_src, width,
                       RowFormat(format), num_threads);
      },
      "source"_a.noconvert(), "grad"_a.noconvert(), "into"_a.noconvert(), "num_dst"_a, "num_src"_a,
      "width"_a, "format"_a, "num_threads"_a, NoGil());
}

}  // namespace lg::bind
