// gather_mapped.h: gather_rows of a mapped file that may be cut off meanwhile: false, and out written in
// part, where a page of it is gone (bus_errors.h). Any number of threads gather at once.
#pragma once

#include <cstdint>

namespace lg {

bool gather_mapped(const uint8_t* table, int64_t num_rows, int64_t row_bytes, const int64_t* ids,
                   const int64_t* positions, int64_t count, uint8_t* out, int64_t num_out);

}  // namespace lg
