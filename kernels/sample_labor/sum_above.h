// sum_above.h: sums in float64 whose bits are the same on every machine.
//
// Order: lane k of eight adds the terms k, k + 8, k + 16, ... one after the other; then
// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). So eight additions run at once, with any instructions.
#pragma once

#include <cstdint>

namespace lg {

struct SumAbove {
  double sum;
  int64_t count;
};

// Sum and number of those of values[count] that are above `bound`; values are not negative.
SumAbove sum_above(const double* values, int64_t count, double bound);

// Sum of min(1, 1 / values[i]).
double sum_inverses_up_to_one(const double* values, int64_t count);

}  // namespace lg
