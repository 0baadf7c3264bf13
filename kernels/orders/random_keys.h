// random_keys.h: one 64-bit key an id; ids sorted by their keys are shuffled.
#pragma once

#include <cstdint>

namespace lg {

void random_keys(uint64_t seed, uint32_t epoch, const int64_t* ids, int64_t count, uint64_t* keys);

}  // namespace lg
