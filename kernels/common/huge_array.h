// huge_array.h: a zeroed array on 2 MB pages, for tables that are read at random.
//
// Pages come on first touch, so a large array costs nothing until it is used.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

namespace lg {

template <class T>
class HugeArray {
 public:
  HugeArray() = default;

  explicit HugeArray(size_t size) : bytes_(size * sizeof(T)) {
    if (bytes_ == 0) return;
    // Anonymous maps of 2 MB and more are aligned to it by recent kernels; elsewhere only the two
    // ends of the array miss out.
    void* memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(memory);
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes_, MADV_HUGEPAGE);  // advice: where it is refused, small pages serve
#endif
  }

  HugeArray(HugeArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HugeArray& operator=(HugeArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HugeArray() {
    if (data_) munmap(data_, bytes_);
  }

  void clear() {
    if (data_) std::memset(data_, 0, bytes_);
  }

  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* data() { return data_; }

 private:
  T* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace lg
