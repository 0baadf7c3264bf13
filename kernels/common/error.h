// error.h: what kernels throw; bind.cpp raises the class of that name in errors.py.
#pragma once

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

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

struct CudaUnavailableError : std::runtime_error {
  using runtime_error::runtime_error;
};

struct ForkError : std::runtime_error {
  using runtime_error::runtime_error;
};

// An error that CUDA's driver reports, under its name there, such as CUDA_ERROR_OUT_OF_MEMORY.
struct CudaCallError : std::runtime_error {
  CudaCallError(std::string name, const std::string& message)
      : runtime_error(message), name(std::move(name)) {}
  std::string name;
};

// A signal to the owner of the arena rather than an error: grow it and sample again.
struct ArenaTooSmall {
  int64_t needed_bytes;
};

// No streams: they number the facets of locales in each copy of libstdc++, and a process has two where a
// compiler links it statically. What they would write is written all the same.
inline void append(std::string& message, const std::string& text) { message += text; }

template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
void append(std::string& message, Number number) {
  static_assert(sizeof(Number) > 1, "a number, or a letter? Convert it to int or std::string.");
  if constexpr (std::is_integral_v<Number>) {
    message += std::to_string(number);
  } else {
    char text[32];
    std::snprintf(text, sizeof text, "%g", double(number));
    bool is_separator = false;  // the C library's, of the user's language: any bytes
    for (const char* at = text; *at; ++at) {
      const bool is_plain = *at >= '+' && *at != ',' && *at != '/' && *at <= 'z';
      if (is_plain || !is_separator) message += is_plain ? *at : '.';
      is_separator = !is_plain;
    }
  }
}

template <class... Parts>
std::string joined(const Parts&... parts) {
  std::string message;
  (append(message, parts), ...);
  return message;
}

template <class Error, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(joined(parts...));
}

// The range check of every id that indexes memory. One compare: negative ids wrap to large ones.
inline bool in_range(int64_t id, int64_t size) { return uint64_t(id) < uint64_t(size); }

}  // namespace lg
