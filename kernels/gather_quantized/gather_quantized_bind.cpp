#include "bind/bind.h"
#include "gather_quantized/gather_quantized.h"

namespace lg::bind {

LG_BIND(m) {
  m.def(
      "gather_quantized",
      [](Array<const int8_t> codes, int64_t num_rows, Array<const float> scale,
         Array<const float> offset, Array<const int64_t> ids, Maybe<int64_t> positions, Bytes out,
         int64_t num_out, int format) {
        gather_quantized({codes.data(), num_rows, int64_t(scale.size()), scale.data(),
                          offset.data(), ids.data(), data(positions), int64_t(ids.size()),
                          out.data(), num_out, FloatFormat(format)});
      },
      "codes"_a.noconvert(), "num_rows"_a, "scale"_a.noconvert(), "offset"_a.noconvert(),
      "ids"_a.noconvert(), "positions"_a.noconvert().none(), "out"_a.noconvert(), "num_out"_a,
      "format"_a, NoGil());
}

}  // namespace lg::bind
