#include "read_rows/ring.h"

#if defined(__linux__) && __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "common/error.h"

namespace lg {
namespace {

// One of the maps that a ring shares with the system.
class Shared {
 public:
  Shared() = default;
  Shared(int fd, uint64_t what, size_t num_bytes) : num_bytes_(num_bytes) {
    begin_ = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
                  off_t(what));
  }
  Shared& operator=(Shared&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(num_bytes_, other.num_bytes_);
    return *this;
  }
  ~Shared() {
    if (sound()) munmap(begin_, num_bytes_);
  }

  bool sound() const { return begin_ != MAP_FAILED; }

  template <class T>
  T* at(uint32_t offset) const {
    return reinterpret_cast<T*>(static_cast<uint8_t*>(begin_) + offset);
  }

 private:
  void* begin_ = MAP_FAILED;
  size_t num_bytes_ = 0;
};

class SystemRing : public Ring {
 public:
  SystemRing(int entries, uint8_t* memory, size_t num_bytes) {
    io_uring_params params{};
    fd_ = int(syscall(__NR_io_uring_setup, entries, &params));
    if (fd_ < 0) return;
    submissions_ =
        Shared(fd_, IORING_OFF_SQ_RING, params.sq_off.array + params.sq_entries * sizeof(uint32_t));
    completions_ = Shared(fd_, IORING_OFF_CQ_RING,
                          params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    entries_ = Shared(fd_, IORING_OFF_SQES, params.sq_entries * sizeof(io_uring_sqe));
    if (!sound()) return;
    // A filter of system calls (seccomp) may allow the ring and no reads by it.
    if (syscall(__NR_io_uring_enter, fd_, 0, 0, 0, nullptr, size_t(0)) < 0) {
      close(std::exchange(fd_, -1));
      return;
    }
    submitted_ = submissions_.at<uint32_t>(params.sq_off.tail);
    submission_mask_ = *submissions_.at<uint32_t>(params.sq_off.ring_mask);
    order_ = submissions_.at<uint32_t>(params.sq_off.array);
    taken_ = completions_.at<uint32_t>(params.cq_off.head);
    completed_ = completions_.at<uint32_t>(params.cq_off.tail);
    completion_mask_ = *completions_.at<uint32_t>(params.cq_off.ring_mask);
    done_ = completions_.at<io_uring_cqe>(params.cq_off.cqes);
    const iovec whole{memory, num_bytes};
    registered_ = syscall(__NR_io_uring_register, fd_, IORING_REGISTER_BUFFERS, &whole, 1) == 0;
  }

  ~SystemRing() override {
    if (fd_ >= 0) close(fd_);
  }

  bool sound() const {
    return fd_ >= 0 && submissions_.sound() && completions_.sound() && entries_.sound();
  }

  void push(int fd, int64_t offset, uint8_t* to, int64_t num_bytes, int tag) override {
    const uint32_t tail = *submitted_;  // this thread alone writes it
    const uint32_t place = tail & submission_mask_;
    io_uring_sqe& entry = entries_.at<io_uring_sqe>(0)[place];
    entry = {};
    entry.opcode = registered_ ? IORING_OP_READ_FIXED : IORING_OP_READ;
    entry.fd = fd;
    entry.off = uint64_t(offset);
    entry.addr = reinterpret_cast<uintptr_t>(to);
    entry.len = uint32_t(num_bytes);
    entry.user_data = uint64_t(tag);
    order_[place] = place;
    __atomic_store_n(submitted_, tail + 1, __ATOMIC_RELEASE);
    ++waiting_;
  }

  Done wait() override {
    const uint32_t head = *taken_;  // likewise
    while (waiting_ > 0 || __atomic_load_n(completed_, __ATOMIC_ACQUIRE) == head) {
      const long begun = syscall(__NR_io_uring_enter, fd_, waiting_, 1, IORING_ENTER_GETEVENTS,
                                 nullptr, size_t(0));
      if (begun >= 0) {
        waiting_ -= uint32_t(begun);
        if (__atomic_load_n(completed_, __ATOMIC_ACQUIRE) != head) break;
      } else if (errno != EINTR && errno != EAGAIN && errno != EBUSY) {
        fail<FeatureFileError>(
            "reading by io_uring failed: ", std::generic_category().message(errno),
            ". Read by threads instead, with another RowReader: use_ring=False.");
      }
    }
    const io_uring_cqe& entry = done_[head & completion_mask_];
    const Done done{int(entry.user_data), entry.res};
    __atomic_store_n(taken_, head + 1, __ATOMIC_RELEASE);
    return done;
  }

 private:
  int fd_ = -1;
  Shared submissions_, completions_, entries_;
  uint32_t *submitted_ = nullptr, *order_ = nullptr, *taken_ = nullptr, *completed_ = nullptr;
  uint32_t submission_mask_ = 0, completion_mask_ = 0;
  io_uring_cqe* done_ = nullptr;
  bool registered_ = false;
  uint32_t waiting_ = 0;  // pushed, and not yet begun
};

}  // namespace

std::unique_ptr<Ring> Ring::open(int entries, uint8_t* memory, size_t num_bytes) {
  auto ring = std::make_unique<SystemRing>(entries, memory, num_bytes);
  if (!ring->sound()) return nullptr;
  return ring;
}

}  // namespace lg

#else  // another system, or headers older than io_uring

namespace lg {

std::unique_ptr<Ring> Ring::open(int, uint8_t*, size_t) { return nullptr; }

}  // namespace lg

#endif
