// emulated_streams.h: operations of streams that wait until the host waits, and which of them is next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/driver.h"

namespace emulated {

using namespace lg::device;

enum : Status {
  kInvalidValue = 1,
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchFailed = 719,
};

// What a device refuses, or does something undefined at.
struct Refusal {
  Status status;
  std::string reason;
};

[[noreturn]] void refuse(Status status, std::string reason) { throw Refusal{status, reason}; }

struct Point {  // an event: records are numbered, and those up to `done` have been reached
  uint64_t recorded = 0, done = 0;
};

struct Bytes {
  uint64_t begin, size;
  bool holds(const Bytes& part) const {
    return part.begin >= begin && part.size <= size && part.begin - begin <= size - part.size;
  }
  bool meets(const Bytes& other) const {
    return begin < other.begin + other.size && other.begin < begin + size;
  }
};

struct Operation {
  std::function<void()> run;
  std::shared_ptr<Point> after;  // waits until `record` of it is done
  uint64_t record = 0;
  std::vector<Bytes> device;  // that it reads or writes
  Bytes host{0, 0};

  bool is_ready() const { return !after || after->done >= record; }
};

// Not thread-safe.
struct Streams {
  bool is_deferred = false;
  uint64_t random = 0;
  Refusal failure{kSuccess, ""};  // for good, as a context's
  std::vector<Bytes> owned;       // device memory that the test has named
  std::map<Stream, std::deque<Operation>> queues;

  size_t below(size_t n) {  // SplitMix64
    uint64_t z = random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % n;
  }

  void check_owned(const Operation& operation, const char* when) const {
    for (const Bytes& bytes : operation.device) {
      if (!owned.empty() && bytes.size &&
          std::none_of(owned.begin(), owned.end(),
                       [&](const Bytes& range) { return range.holds(bytes); })) {
        refuse(kIllegalAddress, std::to_string(bytes.size) + " bytes at " +
                                    std::to_string(bytes.begin) + " are not the device's " + when);
      }
    }
  }

  void run(const Operation& operation) {
    check_owned(operation, "when they are used: they have been given back too early");
    operation.run();
  }

  void add(Stream stream, Operation operation) {
    check_owned(operation, "at the call");
    if (is_deferred) {
      queues[stream].push_back(std::move(operation));
    } else {
      fails_for_good([&] { run(operation); });
    }
  }

  // Runs the head of a stream that is drawn; false where all have to wait, or none is left.
  bool step() {
    std::vector<Stream> ready;
    for (const auto& [stream, queue] : queues) {
      if (!queue.empty() && queue.front().is_ready()) ready.push_back(stream);
    }
    if (ready.empty()) return false;
    std::deque<Operation>& queue = queues[ready[below(ready.size())]];
    const Operation operation = std::move(queue.front());
    queue.pop_front();
    fails_for_good([&] { run(operation); });
    return true;
  }

  template <class Done>
  void run_until(Done is_done) {
    while (!is_done() && step()) {
    }
    if (!is_done()) refuse(kLaunchFailed, "streams wait for each other");
  }

  template <class Work>
  void fails_for_good(Work work) {
    try {
      work();
    } catch (const Refusal& refusal) {
      failure = refusal;
      throw;
    }
  }

  size_t num_waiting() const {
    size_t count = 0;
    for (const auto& [stream, queue] : queues) count += queue.size();
    return count;
  }

  // Whether a copy from or to some host memory waits.
  bool needs(const Bytes& host) const {
    for (const auto& [stream, queue] : queues) {
      for (const Operation& operation : queue) {
        if (operation.host.size && host.meets(operation.host)) return true;
      }
    }
    return false;
  }
};

}  // namespace emulated
