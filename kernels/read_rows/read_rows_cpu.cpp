#include "read_rows/read_rows.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "common/error.h"
#include "gather_rows/check_ids.h"
#include "read_rows/extents.h"

namespace lg {
namespace {

constexpr int64_t kPageBytes = 4096;

int64_t whole(int64_t num_bytes, int64_t unit) { return (num_bytes + unit - 1) / unit * unit; }

// A row that starts and ends amid units lies in up to two more than its bytes fill.
int64_t bytes_a_read(int64_t row_bytes, int64_t unit) {
  return whole(std::max(kReadBytes, whole(row_bytes, unit) + unit), std::max(unit, kPageBytes));
}

// One call's work: what is read, and where it goes.
struct Job {
  const RowFile& file;
  const std::vector<WantedRow>& wanted;
  const std::vector<Extent>& extents;
  uint8_t* out;
};

[[noreturn]] void fail_to_read(const RowFile& file, const Extent& extent, int error) {
  fail<FeatureFileError>(file.name, ": ", extent.num_bytes, " bytes at ", extent.begin,
                         " cannot be read: ", std::generic_category().message(error),
                         ". Look at the disk's health, then prepare the file again.");
}

[[noreturn]] void fail_short(const RowFile& file, const Extent& extent) {
  struct stat now{};
  const int64_t found = fstat(file.fd, &now) == 0 ? int64_t(now.st_size) : -1;
  fail<FeatureFileError>(
      file.name, " was truncated while in use: it has ", found, " bytes, but rows up to byte ",
      file.offset + file.num_rows * file.row_bytes, " were there; ", extent.needed_bytes,
      " bytes at ", extent.begin, " are needed. Prepare it again.");
}

// A read may give less than was asked for, for many reasons; the file's end alone is an error.
void read_rest(const RowFile& file, const Extent& extent, uint8_t* buffer, int64_t got) {
  while (got < extent.needed_bytes) {
    const int64_t kept = got / file.unit * file.unit;
    const ssize_t more =
        pread(file.fd, buffer + kept, size_t(extent.num_bytes - kept), off_t(extent.begin + kept));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) fail_to_read(file, extent, errno);
    if (kept + more <= got) fail_short(file, extent);
    got = kept + more;
  }
}

// result: bytes that are in the buffer already, or why there are none.
void finish(const Job& job, const Extent& extent, uint8_t* buffer, int64_t result) {
  if (result < 0 && result != -EINTR && result != -EAGAIN) {
    fail_to_read(job.file, extent, int(-result));
  }
  read_rest(job.file, extent, buffer, std::max<int64_t>(result, 0));
  const int64_t row_bytes = job.file.row_bytes;
  for (int64_t i = extent.first; i < extent.last; ++i) {
    const WantedRow& row = job.wanted[size_t(i)];
    const int64_t place = job.file.offset + row.id * row_bytes - extent.begin;
    std::memcpy(job.out + row.position * row_bytes, buffer + place, size_t(row_bytes));
  }
}

// Returns what failed, once nothing is under way any more; throws where the ring itself fails.
template <class Buffer>
std::exception_ptr read_by_ring(const Job& job, Ring& ring, int in_flight, const Buffer& buffer) {
  std::vector<int> idle;
  for (int number = in_flight; number-- > 0;) idle.push_back(number);
  std::vector<const Extent*> reads(static_cast<size_t>(in_flight));  // by buffer
  size_t next = 0;
  std::exception_ptr failure;
  // After a failure nothing new begins, but what was begun still writes to its buffer.
  while ((next < job.extents.size() && !failure) || int(idle.size()) < in_flight) {
    while (next < job.extents.size() && !failure && !idle.empty()) {
      const int number = idle.back();
      idle.pop_back();
      const Extent& extent = job.extents[next++];
      reads[size_t(number)] = &extent;
      ring.push(job.file.fd, extent.begin, buffer(number), extent.num_bytes, number);
    }
    const Ring::Done done = ring.wait();
    idle.push_back(done.tag);
    if (failure) continue;
    try {
      finish(job, *reads[size_t(done.tag)], buffer(done.tag), done.result);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  return failure;
}

template <class Buffer>
void read_by_threads(const Job& job, int num_threads, const Buffer& buffer) {
  std::atomic<size_t> next{0};
  std::mutex failing;
  std::exception_ptr failure;
  const auto work = [&](int number) {
    for (size_t i; (i = next.fetch_add(1)) < job.extents.size();) {
      try {
        finish(job, job.extents[i], buffer(number), 0);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(failing);
        failure = std::current_exception();
        next = job.extents.size();
      }
    }
  };
  std::vector<std::thread> others;
  try {
    for (int number = 1; number < num_threads; ++number) others.emplace_back(work, number);
  } catch (const std::system_error&) {
    // The system gives no more threads: those that there are do it all.
  }
  work(0);
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

RowReader::RowReader(int64_t row_bytes, int64_t unit, int in_flight, bool use_ring)
    : row_bytes_(row_bytes),
      unit_(unit),
      buffer_bytes_(bytes_a_read(row_bytes, unit)),
      in_flight_(in_flight),
      pages_(in_flight * buffer_bytes_),
      ring_(use_ring ? Ring::open(in_flight, pages_.begin(), pages_.num_bytes()) : nullptr) {}

Tally RowReader::read(const RowFile& file, const int64_t* ids, const int64_t* positions,
                      int64_t count, uint8_t* out, int64_t num_out) {
  check_ids(ids, count, file.num_rows);
  check_positions(positions, count, num_out);
  if (file.row_bytes != row_bytes_ || file.unit != unit_) {
    fail<SamplerConfigError>("RowReader: made for rows of ", row_bytes_, " bytes in units of ",
                             unit_, ", but the file has ", file.row_bytes, " and ", file.unit, ".");
  }
  if (busy_.exchange(true)) {
    fail<SamplerConfigError>("RowReader: in use by another thread. Give each thread its own.");
  }
  struct Lease {
    std::atomic<bool>& busy;
    ~Lease() { busy.store(false); }
  } lease{busy_};
  if (file.row_bytes == 0) return {0, 0};

  const std::vector<WantedRow> wanted = sorted_rows(ids, positions, count);
  const std::vector<Extent> extents = plan_reads(file, wanted, buffer_bytes_);
  const Job job{file, wanted, extents, out};
  const auto buffer_at = [this](int number) { return buffer(number); };
  if (ring_ != nullptr) {
    if (ring_failed_) {
      fail<FeatureFileError>(
          "this RowReader's io_uring has failed before, and may still be reading to its buffers. "
          "Make another RowReader; with use_ring=False it reads by threads.");
    }
    ring_failed_ = true;
    const std::exception_ptr failure = read_by_ring(job, *ring_, in_flight_, buffer_at);
    ring_failed_ = false;
    if (failure) std::rethrow_exception(failure);
  } else {
    read_by_threads(job, std::min({in_flight_, kThreads, int(extents.size())}), buffer_at);
  }
  Tally tally{int64_t(extents.size()), 0};
  for (const Extent& extent : extents) tally.bytes += extent.num_bytes;
  return tally;
}

}  // namespace lg
