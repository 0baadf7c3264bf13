// exact.h: heap arrays without a byte to spare.
//
// The first byte beyond is out of bounds to a sanitizer; and since a sanitizer does not watch
// masked vector stores, what lies there is looked at again when the array goes.
#pragma once

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace lg::fuzz {

class Memory {
 public:
  // Never a null pointer: NumPy's empty arrays have an address, too.
  Memory(size_t num_bytes, size_t alignment)
      : num_bytes_(num_bytes), alignment_(std::align_val_t(alignment)) {
    begin_ = static_cast<uint8_t*>(::operator new(whole_bytes(), alignment_));
    std::fill_n(begin_, whole_bytes(), kUntouched);
    ASAN_POISON_MEMORY_REGION(begin_ + num_bytes_, whole_bytes() - num_bytes_);
  }
  Memory(Memory&& other) noexcept
      : begin_(std::exchange(other.begin_, nullptr)),
        num_bytes_(other.num_bytes_),
        alignment_(other.alignment_) {}
  Memory& operator=(Memory&&) = delete;

  ~Memory() {
    if (begin_ == nullptr) return;
    ASAN_UNPOISON_MEMORY_REGION(begin_ + num_bytes_, whole_bytes() - num_bytes_);
    for (size_t i = num_bytes_; i < whole_bytes(); ++i) {
      if (begin_[i] == kUntouched) continue;
      std::fprintf(stderr, "fuzz: byte %zu of an array of %zu was written to\n", i, num_bytes_);
      std::abort();
    }
    ::operator delete(begin_, alignment_);
  }

  uint8_t* begin() const { return begin_; }

 private:
  static constexpr uint8_t kUntouched = 0xA5;

  // Room for one vector beyond, and up to where a sanitizer's granule of eight bytes ends.
  size_t whole_bytes() const { return (num_bytes_ + 7) / 8 * 8 + 64; }

  uint8_t* begin_;
  size_t num_bytes_;
  std::align_val_t alignment_;
};

template <class T>
class Exact {
 public:
  explicit Exact(int64_t size, T fill = T())
      : memory_(size_t(size) * sizeof(T), alignof(std::max_align_t)), size_(size) {
    std::fill_n(data(), size, fill);
  }
  explicit Exact(const std::vector<T>& values) : Exact(int64_t(values.size())) {
    std::copy(values.begin(), values.end(), data());
  }

  T* data() { return reinterpret_cast<T*>(memory_.begin()); }
  const T* data() const { return reinterpret_cast<const T*>(memory_.begin()); }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  Memory memory_;
  int64_t size_;
};

// What kernels write batches into.
class Arena {
 public:
  explicit Arena(int64_t num_bytes) : memory_(size_t(num_bytes), kAlignment) {}

  uint8_t* data() { return memory_.begin(); }

  template <class T>
  const T* at(int64_t offset) const {
    return reinterpret_cast<const T*>(memory_.begin() + offset);
  }

 private:
  static constexpr size_t kAlignment = 64;
  Memory memory_;
};

}  // namespace lg::fuzz
