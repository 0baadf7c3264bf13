#include "aggregate/sum_neighbors.h"
#include "bind/bind.h"

namespace lg::bind {
namespace {

template <auto kSum>
void sum(Array<const int32_t> indptr, Array<const int32_t> indices, Array<const uint8_t> in,
         int64_t num_src, int64_t width, int format, bool is_mean, Bytes out, int num_threads) {
  const AggregateRequest request{
      indptr.data(), int64_t(indptr.size()) - 1, indices.data(), int64_t(indices.size()), num_src,
      width,         RowFormat(format),          num_threads};
  kSum(request, is_mean, in.data(), out.data());
}

}  // namespace

LG_BIND(m) {
  m.def("sum_neighbors", &sum<sum_neighbors>, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "x"_a.noconvert(), "num_src"_a, "width"_a, "format"_a, "is_mean"_a, "out"_a.noconvert(),
        "num_threads"_a, NoGil());
  m.def("sum_destinations", &sum<sum_destinations>, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "grad"_a.noconvert(), "num_src"_a, "width"_a, "format"_a, "is_mean"_a, "out"_a.noconvert(),
        "num_threads"_a, NoGil());
}

}  // namespace lg::bind
