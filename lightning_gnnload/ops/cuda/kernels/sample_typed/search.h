// search.h: where in ascending numbers a bound lies. For CPU and CUDA.
#pragma once

#include "common/philox.h"

namespace lg {

// A step of a search: numbers before `at` are below the bound, those from at + left on are not.
template <class T>
LG_HD void halve(const T* ascending, T bound, int64_t& at, int64_t& left) {
  const int64_t half = (left + 1) / 2;
  at += ascending[at + half - 1] < bound ? half : 0;
  left -= half;
}

// The place of the first of `count` numbers that is not below the bound, else `count`.
template <class T>
LG_HD int64_t first_not_below(const T* ascending, int64_t count, T bound) {
  int64_t at = 0, left = count;
  while (left > 0) halve(ascending, bound, at, left);
  return at;
}

}  // namespace lg
