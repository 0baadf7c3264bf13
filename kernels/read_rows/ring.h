// ring.h: io_uring by its system calls: reads that the system carries out while this thread does not wait.
//
//   Ring::open()        nullptr where the system has none, or lets this process have none
//   ring.push(...)      one more read; at most `entries` may be under way
//   ring.wait()         begins what was pushed, waits until a read is done, and says which
//
// One thread at a time. Source: io_uring_setup(2), io_uring_enter(2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lg {

class Ring {
 public:
  // memory: where all reads go to. It is registered, which spares each read to look up its pages;
  // where the system registers no more, reads look them up.
  static std::unique_ptr<Ring> open(int entries, uint8_t* memory, size_t num_bytes);

  virtual ~Ring() = default;

  virtual void push(int fd, int64_t offset, uint8_t* to, int64_t num_bytes, int tag) = 0;

  struct Done {
    int tag;
    int64_t result;  // bytes read, or a negative errno
  };
  virtual Done wait() = 0;
};

}  // namespace lg
