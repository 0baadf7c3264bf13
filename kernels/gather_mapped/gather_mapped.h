// gather_mapped.h: gather_rows of a mapped file that may be cut off meanwhile.
//
// The system answers a read of a page that its file no longer has with SIGBUS, which ends the process.
// Here it ends the gather instead: false, and out is then written in part. All other SIGBUS go to
// whoever handled them before, or end the process as they would have.
//
// Any number of threads gather at once. The handler is this process's one for SIGBUS from the first
// call on; where others install one later, the next call puts it back in front of theirs.
#pragma once

#include <cstdint>

namespace lg {

bool gather_mapped(const uint8_t* table, int64_t num_rows, int64_t row_bytes, const int64_t* ids,
                   const int64_t* positions, int64_t count, uint8_t* out, int64_t num_out);

}  // namespace lg
