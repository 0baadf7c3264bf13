// error.h: what kernels throw; bind.cpp raises the class of that name in errors.py.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace lg {

struct SeedError : std::runtime_error {
  using runtime_error::runtime_error;
};

struct GraphFormatError : std::runtime_error {
  using runtime_error::runtime_error;
};

struct SamplerConfigError : std::runtime_error {
  using runtime_error::runtime_error;
};

struct FeatureFileError : std::runtime_error {
  using runtime_error::runtime_error;
};

struct CacheShareError : std::runtime_error {
  using runtime_error::runtime_error;
};

// A signal to the owner of the arena rather than an error: grow it and sample again.
struct ArenaTooSmall {
  int64_t needed_bytes;
};

template <class Error, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Error(message.str());
}

// The range check of every id that indexes memory. One compare: negative ids wrap to large ones.
inline bool in_range(int64_t id, int64_t size) { return uint64_t(id) < uint64_t(size); }

}  // namespace lg
