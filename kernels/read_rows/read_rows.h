// read_rows.h: rows of a file, by a bounded number of reads that are in flight at once.
//
//   in   file           rows of row_bytes, one after the other, row 0 at `offset`; reads begin and end at
//                       multiples of `unit` bytes, as a file that is opened for direct reads asks
//   in   ids[count]     checked before any row is read; SeedError names the first bad one
//   in   positions      [count] rows of out, or nullptr for 0, 1, 2, ...; checked likewise
//   out  out            num_out rows of row_bytes, starting anywhere; rows that are no one's are left alone
//   ret  Tally          reads, and their bytes, which are whole units
//
// Reads go through the file in order; one read serves all wanted rows that lie in units which touch,
// up to kReadBytes. Bytes that were not wanted are read only where they share a unit with some that were.
//
// FeatureFileError, out then written in part: the file ends before a wanted row does, or cannot be read.
// Nothing is in flight any more when a call returns or throws, but where io_uring itself fails: that
// reader then reads no more, and its buffers may go, as Pages says.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

#include "read_rows/ring.h"

namespace lg {

constexpr int64_t kReadBytes = 32 << 10;

struct RowFile {
  int fd;
  const char* name;  // for messages
  int64_t offset, num_rows, row_bytes, unit;
};

struct Tally {
  int64_t reads, bytes;
};

// Whole pages of private memory, which direct reads may go to. Unlike the heap's, they may be given
// back while a read is in flight: the system keeps them until it is done.
class Pages {
 public:
  explicit Pages(int64_t num_bytes) : num_bytes_(size_t(num_bytes)) {
    void* memory =
        mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<uint8_t*>(memory);
  }
  ~Pages() { munmap(begin_, num_bytes_); }
  Pages(const Pages&) = delete;

  uint8_t* begin() const { return begin_; }
  size_t num_bytes() const { return num_bytes_; }

 private:
  uint8_t* begin_;
  size_t num_bytes_;
};

// What one thread reads with, again and again: buffers, and the ring by which the system fills them.
class RowReader {
 public:
  // in_flight: reads at once, 1 to kMostInFlight. use_ring: by io_uring, where the system has it and
  // lets this process use it; otherwise up to kThreads threads read, each for itself.
  RowReader(int64_t row_bytes, int64_t unit, int in_flight, bool use_ring);

  Tally read(const RowFile& file, const int64_t* ids, const int64_t* positions, int64_t count,
             uint8_t* out, int64_t num_out);

  bool has_ring() const { return ring_ != nullptr; }

  static constexpr int kMostInFlight = 1024;
  static constexpr int kThreads = 8;

 private:
  uint8_t* buffer(int number) const { return pages_.begin() + number * buffer_bytes_; }

  const int64_t row_bytes_, unit_, buffer_bytes_;
  const int in_flight_;
  const Pages pages_;
  std::unique_ptr<Ring> ring_;  // goes before the pages that it reads to
  bool ring_failed_ = false;    // reads of a call may be under way still
  std::atomic<bool> busy_{false};
};

}  // namespace lg
