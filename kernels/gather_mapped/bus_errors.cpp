#include "gather_mapped/bus_errors.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>

namespace lg {
namespace {

struct WatchedMap {
  // Last of all written, and first of all cleared: the handler may look at any time.
  std::atomic<const uint8_t*> begin{nullptr};
  const uint8_t* end;
  char name[512];
};

thread_local GuardedRead* guarded_read = nullptr;
std::mutex changing;
WatchedMap maps[kWatched];
int64_t num_watched = 0;
struct sigaction previous;  // whose turn it is where nothing of ours is concerned
volatile sig_atomic_t passed_on = 0;

// Nothing but write() is allowed in a handler of signals.
void say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void name_file(const uint8_t* place) {
  for (const WatchedMap& map : maps) {
    const uint8_t* const begin = map.begin.load(std::memory_order_acquire);
    if (begin == nullptr || place < begin || place >= map.end) continue;
    say("lightning_gnnload: ");
    say(map.name);
    say(" was truncated while in use, or its disk fails: a page of it is gone. Prepare it "
        "again.\n");
    return;
  }
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const auto* const place = static_cast<const uint8_t*>(info->si_addr);
  const bool is_fault = info->si_code > 0;  // and not sent by a process
  GuardedRead* const here = guarded_read;
  if (is_fault && here != nullptr && place >= here->begin && place < here->end) {
    siglongjmp(here->gone, 1);
  }
  // A handler that was put in front of this one and passes on to it would be called again, without end.
  const bool first = !passed_on;
  passed_on = is_fault;
  if (is_fault && first) name_file(place);
  if (first && previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(number, info, context);
  } else if (first && previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  } else {
    signal(number, SIG_DFL);
    raise(number);  // it waits until this handler returns, and then ends the process
  }
}

}  // namespace

void install_bus_handler() {
  const std::lock_guard<std::mutex> lock(changing);
  struct sigaction now;
  sigaction(SIGBUS, nullptr, &now);
  if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus_error) return;
  previous = now;
  struct sigaction ours{};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, nullptr);
}

void set_guarded(GuardedRead* read) { guarded_read = read; }

int64_t watch_map(const uint8_t* begin, const uint8_t* end, const std::string& name) {
  install_bus_handler();
  const std::lock_guard<std::mutex> lock(changing);
  WatchedMap& map = maps[num_watched % kWatched];
  map.begin.store(nullptr, std::memory_order_release);
  map.end = end;
  std::strncpy(map.name, name.c_str(), sizeof(map.name) - 1);
  map.begin.store(begin, std::memory_order_release);
  return num_watched++;
}

void unwatch_map(int64_t number) {
  const std::lock_guard<std::mutex> lock(changing);
  if (number + kWatched < num_watched) return;  // its place is another's by now
  maps[number % kWatched].begin.store(nullptr, std::memory_order_release);
}

}  // namespace lg
