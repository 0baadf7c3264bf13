// fetch.h: asking for memory ahead of its use.
#pragma once

// For functions that do nothing but fetch: GCC takes them for free of effects and drops calls that it has not
// inlined by then.
#define LG_PREFETCHES __attribute__((always_inline)) inline

namespace lg {

// Asks for the cache line at an address, into the second-level cache: more misses are under way at once there
// than into the first, which the read itself then reaches in a few nanoseconds. Measured on Zen 4, random lines
// of a large table on 2 MB pages: 5.7 ns each, into the first level 9.5.
LG_PREFETCHES void fetch_line(const void* at) {
  __builtin_prefetch(at, /*for writing*/ 0, /*level*/ 2);
}

}  // namespace lg
