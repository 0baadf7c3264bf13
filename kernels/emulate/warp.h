// warp.h: a warp's collectives and a block's barriers.
#pragma once

#include "emulate/machine.h"

namespace emulate {

// What collectives carry: 32 or 64 bits; a bool goes as an int.
template <class T>
uint64_t pack(T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "collectives carry 32 or 64 bits");
  uint64_t word = 0;
  memcpy(&word, &value, sizeof value);
  return word;
}

template <class T>
T unpack(uint64_t word) {
  T value;
  memcpy(&value, &word, sizeof value);
  return value;
}

template <class T>
using Promoted = decltype(+T());

// From `from` of the caller's group of `width` lanes, or its own value where that is outside.
template <class T>
T shuffle(const char* name, unsigned mask, T value, int width, int from, bool is_inside) {
  if (width < 1 || width > int(kLanes) || (width & (width - 1))) {
    set_error("%s: the width is %d, but has to be a power of two up to 32", name, width);
    fail();
  }
  const uint64_t* seen = meet(name, mask, pack(value));
  return is_inside ? unpack<T>(seen[from]) : value;
}

template <class T, class Combine>
T reduce(const char* name, unsigned mask, T value, Combine combine) {
  static_assert(sizeof(T) == 4, "reductions take 32 bits");
  const uint64_t* seen = meet(name, mask, pack(value));
  T result = value;
  bool own_is_in = false;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (!(mask >> lane & 1)) continue;
    result = own_is_in ? combine(result, unpack<T>(seen[lane])) : unpack<T>(seen[lane]);
    own_is_in = true;
  }
  return result;
}

}  // namespace emulate

template <class T>
emulate::Promoted<T> __shfl_sync(unsigned mask, T value, int lane, int width = warpSize) {
  const int first = int(emulate::machine.lane()) & ~(width - 1);
  return emulate::shuffle("__shfl_sync", mask, +value, width, (first + (lane & (width - 1))) & 31,
                          true);
}

template <class T>
emulate::Promoted<T> __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int self = int(emulate::machine.lane()), from = self - int(delta);
  const bool is_inside = from >= (self & ~(width - 1));
  return emulate::shuffle("__shfl_up_sync", mask, +value, width, from, is_inside);
}

template <class T>
emulate::Promoted<T> __shfl_down_sync(unsigned mask, T value, unsigned delta,
                                      int width = warpSize) {
  const int self = int(emulate::machine.lane()), from = self + int(delta);
  const bool is_inside = from <= (self | (width - 1));
  return emulate::shuffle("__shfl_down_sync", mask, +value, width, from, is_inside);
}

// A lane of an earlier group may be read, one of a later group not.
template <class T>
emulate::Promoted<T> __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize) {
  const int self = int(emulate::machine.lane()), from = self ^ bits;
  const bool is_inside = from <= (self | (width - 1));
  return emulate::shuffle("__shfl_xor_sync", mask, +value, width, from & 31, is_inside);
}

inline void __syncwarp(unsigned mask = ~0u) { emulate::meet("__syncwarp", mask, 0); }

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const uint64_t* seen = emulate::meet("__ballot_sync", mask, predicate != 0);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < emulate::kLanes; ++lane)
    ballot |= unsigned(seen[lane] & 1) << lane;
  return ballot & mask;
}

inline int __any_sync(unsigned mask, int predicate) {
  const uint64_t* seen = emulate::meet("__any_sync", mask, predicate != 0);
  for (unsigned lane = 0; lane < emulate::kLanes; ++lane) {
    if (mask >> lane & 1 && seen[lane]) return 1;
  }
  return 0;
}

inline int __all_sync(unsigned mask, int predicate) {
  const uint64_t* seen = emulate::meet("__all_sync", mask, predicate != 0);
  for (unsigned lane = 0; lane < emulate::kLanes; ++lane) {
    if (mask >> lane & 1 && !seen[lane]) return 0;
  }
  return 1;
}

template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  const uint64_t* seen = emulate::meet("__match_any_sync", mask, emulate::pack(value));
  unsigned same = 0;
  for (unsigned lane = 0; lane < emulate::kLanes; ++lane) {
    same |= unsigned(seen[lane] == emulate::pack(value)) << lane;
  }
  return same & mask;
}

template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* are_same) {
  const uint64_t* seen = emulate::meet("__match_all_sync", mask, emulate::pack(value));
  *are_same = 1;
  for (unsigned lane = 0; lane < emulate::kLanes; ++lane) {
    if (mask >> lane & 1 && seen[lane] != emulate::pack(value)) *are_same = 0;
  }
  return *are_same ? mask : 0;
}

#define LG_REDUCE(name, expression)                                                       \
  template <class T>                                                                      \
  T name(unsigned mask, T value) {                                                        \
    return emulate::reduce(#name, mask, value, [](T a, T b) -> T { return expression; }); \
  }
LG_REDUCE(__reduce_add_sync, a + b)
LG_REDUCE(__reduce_min_sync, a < b ? a : b)
LG_REDUCE(__reduce_max_sync, a < b ? b : a)
LG_REDUCE(__reduce_and_sync, a& b)
LG_REDUCE(__reduce_or_sync, a | b)
LG_REDUCE(__reduce_xor_sync, a ^ b)
#undef LG_REDUCE

inline void __syncthreads() { emulate::meet_all("__syncthreads", false); }

inline int __syncthreads_count(int predicate) {
  return int(emulate::meet_all("__syncthreads_count", predicate != 0));
}

inline int __syncthreads_or(int predicate) {
  return emulate::meet_all("__syncthreads_or", predicate != 0) > 0;
}

inline int __syncthreads_and(int predicate) {
  return emulate::meet_all("__syncthreads_and", predicate != 0) == emulate::machine.num_threads;
}
