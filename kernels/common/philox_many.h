// philox_many.h: Philox of many counters under one key, with vector instructions.
//
//   in   blocks[count]   counters
//   out  blocks[count]   their words
#pragma once

#include <cstdint>

#include "common/philox.h"

namespace lg {

void philox_many(Words4* blocks, int64_t count, uint32_t key0, uint32_t key1);

}  // namespace lg
