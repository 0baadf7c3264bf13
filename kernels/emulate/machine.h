// machine.h: the threads of one block as fibers, and who of them runs next.
//
// One fiber runs at a time, on the caller's thread. It gives way at collectives, barriers, atomic
// operations, fences and loads that name a cache; the next one is drawn. Misuse ends the launch with a message.
#pragma once

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "emulate/types.h"

namespace emulate {

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kLanes = 32;
constexpr size_t kStackBytes = 64 << 10;
constexpr uint64_t kStackEnd = 0x656e64206f662073u;  // in the last word: still there, or overrun
constexpr uint64_t kMaxSteps = uint64_t(1) << 27;  // of a block: more of them is a spin without end
constexpr size_t kGuardBytes = 64;                 // behind dynamic shared memory

// SplitMix64. Source: Steele et al., "Fast splittable pseudorandom number generators", OOPSLA'14.
struct Random {
  uint64_t state;

  uint64_t word() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }

  size_t below(size_t n) { return word() % n; }
};

struct Thread {
  jmp_buf context;
  bool is_started = false;
  bool is_ended = false;
  const char* waits_at = nullptr;  // a collective or barrier; else it can run
  unsigned mask = 0;               // of the collective
  uint64_t value = 0;              // what it gives
  uint64_t seen[kLanes] = {};      // what the others gave: [lane], or [0] of a barrier
};

enum Return { kFirst, kGaveWay, kFailed };

struct Memory {
  unsigned char* begin;
  size_t num_bytes;
};

struct Machine {
  std::unique_ptr<Thread[]> threads{new Thread[kMaxThreads]};
  unsigned char* stacks = nullptr;
  std::vector<unsigned> runnable;
  unsigned num_threads = 0, num_ended = 0, num_at_barrier = 0;
  unsigned running = 0;
  jmp_buf scheduler;
  ucontext_t start;
  Random random{0};
  std::vector<unsigned char> dynamic_shared;
  std::vector<Memory> static_shared;
  void (*kernel)(void**) = nullptr;
  void** arguments = nullptr;
  std::string error;

  Thread& thread() { return threads[running]; }
  unsigned lane() const { return running % kLanes; }
  unsigned char* stack(unsigned index) { return stacks + index * kStackBytes; }
};

inline Machine machine;

// Back to the scheduler, until it lets this thread go on.
__attribute__((noinline)) inline void leave() {
  if (!_setjmp(machine.thread().context)) _longjmp(machine.scheduler, kGaveWay);
}

inline void give_way() {
  machine.runnable.push_back(machine.running);
  leave();
}

__attribute__((format(printf, 1, 2))) inline void set_error(const char* format, ...) {
  char text[512];
  va_list parts;
  va_start(parts, format);
  vsnprintf(text, sizeof text, format, parts);
  va_end(parts);
  machine.error = "block " + std::to_string(blockIdx.x) + ": " + text;
}

// Ends the launch. Called by a running thread.
[[noreturn]] inline void fail() { _longjmp(machine.scheduler, kFailed); }

// The lanes of `mask` meet: each sees what all of them gave. Lanes outside show random words.
inline const uint64_t* meet(const char* name, unsigned mask, uint64_t value) {
  Thread& self = machine.thread();
  const unsigned first = machine.running - machine.lane();
  if (!(mask >> machine.lane() & 1)) {
    set_error("thread %u calls %s with the mask 0x%08x, which leaves out its own lane",
              machine.running, name, mask);
    fail();
  }
  self.waits_at = name;
  self.mask = mask;
  self.value = value;
  bool all_here = true;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (!(mask >> lane & 1)) continue;
    const Thread* other = &machine.threads[first + lane];
    if (first + lane >= machine.num_threads || other->is_ended) {
      set_error("thread %u waits at %s for thread %u, which is in the mask 0x%08x but has ended",
                machine.running, name, first + lane, mask);
      fail();
    }
    all_here &= other->waits_at && !strcmp(other->waits_at, name) && other->mask == mask;
  }
  if (all_here) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if (!(mask >> lane & 1)) continue;
      Thread& other = machine.threads[first + lane];
      for (unsigned from = 0; from < kLanes; ++from) {
        const bool gave = mask >> from & 1;
        other.seen[from] = gave ? machine.threads[first + from].value : machine.random.word();
      }
      other.waits_at = nullptr;
      machine.runnable.push_back(first + lane);
    }
  }
  leave();
  return machine.thread().seen;
}

inline unsigned first_ended() {
  unsigned index = 0;
  while (!machine.threads[index].is_ended) ++index;
  return index;
}

// The block's threads meet; each gets the number of those that gave a true value.
inline unsigned meet_all(const char* name, bool value) {
  machine.thread().waits_at = name;
  machine.thread().mask = 0;
  machine.thread().value = value;
  if (machine.num_ended > 0) {
    set_error("thread %u waits at %s, but thread %u has ended", machine.running, name,
              first_ended());
    fail();
  }
  if (++machine.num_at_barrier == machine.num_threads) {
    unsigned num_here = 0, num_true = 0;
    for (unsigned index = 0; index < machine.num_threads; ++index) {
      num_here += !strcmp(machine.threads[index].waits_at, name);
      num_true += machine.threads[index].value != 0;
    }
    for (unsigned index = 0; num_here == machine.num_threads && index < num_here; ++index) {
      machine.threads[index].waits_at = nullptr;
      machine.threads[index].seen[0] = num_true;
      machine.runnable.push_back(index);
    }
    machine.num_at_barrier = 0;
  }
  leave();
  return unsigned(machine.thread().seen[0]);
}

// Whether nobody waits for the thread that just ended; else the error says who.
inline bool may_end() {
  const unsigned first = machine.running - machine.lane();
  const bool barrier = machine.num_at_barrier > 0;
  const unsigned begin = barrier ? 0 : first;
  const unsigned end =
      barrier ? machine.num_threads : std::min(first + kLanes, machine.num_threads);
  for (unsigned index = begin; index < end; ++index) {
    const Thread& other = machine.threads[index];
    if (!other.waits_at) continue;
    const bool same_warp = index - index % kLanes == first;
    if (other.mask && !(same_warp && other.mask >> machine.lane() & 1)) continue;
    set_error("thread %u waits at %s for thread %u, which ended without coming there", index,
              other.waits_at, machine.running);
    return false;
  }
  return true;
}

// What a fiber does for ever: one thread of each block.
inline void live() {
  for (;;) {
    machine.kernel(machine.arguments);
    memcpy(&machine.thread().value, machine.stack(machine.running), sizeof(uint64_t));
    if (machine.thread().value != kStackEnd) {
      set_error("thread %u needs more than %zu bytes of stack", machine.running, kStackBytes);
      fail();
    }
    machine.thread().is_ended = true;
    ++machine.num_ended;
    if (!may_end()) fail();
    leave();
  }
}

inline void begin(unsigned index) {
  machine.threads[index].is_started = true;
  memcpy(machine.stack(index), &kStackEnd, sizeof kStackEnd);
  getcontext(&machine.start);
  machine.start.uc_stack.ss_sp = machine.stack(index);
  machine.start.uc_stack.ss_size = kStackBytes;
  machine.start.uc_link = nullptr;
  makecontext(&machine.start, live, 0);
  setcontext(&machine.start);
}

// Lets one thread go on until it leaves. Returns whether all is well.
__attribute__((noinline)) inline bool resume(unsigned index) {
  machine.running = index;
  threadIdx = {index, 0, 0};
  switch (_setjmp(machine.scheduler)) {
    case kFirst:
      if (machine.thread().is_started) _longjmp(machine.thread().context, 1);
      begin(machine.running);
      [[fallthrough]];
    case kGaveWay:
      return true;
    default:
      return false;
  }
}

inline std::string place(const Thread& thread) {
  char mask[16] = "";
  if (thread.mask) snprintf(mask, sizeof mask, "(0x%08x)", thread.mask);
  return std::string(thread.waits_at) + mask;
}

// Everybody waits: names the first thread that does, and one that waits elsewhere.
inline void describe_deadlock() {
  const Thread* first = nullptr;
  for (unsigned index = 0; index < machine.num_threads; ++index) {
    const Thread& thread = machine.threads[index];
    if (!thread.waits_at) continue;
    if (!first) first = &thread;
    if (place(thread) == place(*first)) continue;
    set_error("threads wait for each other: %u at %s, %u at %s",
              unsigned(first - machine.threads.get()), place(*first).c_str(), index,
              place(thread).c_str());
    return;
  }
}

// Runs the block that blockIdx names. Returns whether all went well; else machine.error says why.
inline bool run_block(unsigned shared_bytes) {
  machine.num_ended = machine.num_at_barrier = 0;
  machine.runnable.clear();
  for (unsigned index = 0; index < machine.num_threads; ++index) {
    machine.threads[index].is_ended = false;
    machine.threads[index].waits_at = nullptr;
    machine.runnable.push_back(index);
  }
  for (auto& byte : machine.dynamic_shared) byte = uint8_t(machine.random.word());
  for (const Memory& memory : machine.static_shared) {
    std::fill_n(memory.begin, memory.num_bytes, uint8_t(machine.random.word()));
  }
  const std::vector<unsigned char> guard(machine.dynamic_shared.begin() + shared_bytes,
                                         machine.dynamic_shared.end());
  for (uint64_t steps = 0; !machine.runnable.empty(); ++steps) {
    if (steps == kMaxSteps) {
      set_error("after %llu steps some thread still spins", (unsigned long long)steps);
      return false;
    }
    std::swap(machine.runnable[machine.random.below(machine.runnable.size())],
              machine.runnable.back());
    const unsigned next = machine.runnable.back();
    machine.runnable.pop_back();
    if (!resume(next)) return false;
  }
  if (machine.num_ended < machine.num_threads) {
    describe_deadlock();
    return false;
  }
  if (!std::equal(guard.begin(), guard.end(), machine.dynamic_shared.begin() + shared_bytes)) {
    set_error("wrote behind its %u bytes of dynamic shared memory", shared_bytes);
    return false;
  }
  return true;
}

}  // namespace emulate
