// huge_array.h: a zeroed array on 2 MB pages, for tables that are read at random.
//
// Pages come on first touch, so a large array costs nothing until it is used.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace lg {

template <class T>
class HugeArray {
 public:
  HugeArray() = default;

  explicit HugeArray(size_t size) : bytes_(size * sizeof(T)) {
    if (bytes_ > 0) data_ = static_cast<T*>(allocate(bytes_));
  }

  HugeArray(HugeArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HugeArray& operator=(HugeArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HugeArray() {
    if (data_) release(data_, bytes_);
  }

  void clear() {
    if (data_) std::memset(data_, 0, bytes_);
  }

  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* data() { return data_; }
  const T* data() const { return data_; }

 private:
#ifndef __SANITIZE_ADDRESS__
  static void* allocate(size_t bytes) {
    // Anonymous maps of 2 MB and more are aligned to it by recent kernels; elsewhere only the two
    // ends of the array miss out.
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE);  // advice: where it is refused, small pages serve
#endif
    return memory;
  }
  static void release(void* memory, size_t bytes) { munmap(memory, bytes); }
#else  // a sanitizer sees the bounds of what is on the heap, and no others
  static void* allocate(size_t bytes) {
    void* memory = std::calloc(bytes, 1);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  static void release(void* memory, size_t) { std::free(memory); }
#endif

  T* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace lg
