#include "gather_mapped/gather_mapped.h"

#include <setjmp.h>
#include <signal.h>

#include <mutex>

#include "gather_rows/gather_rows.h"

namespace lg {
namespace {

// What a thread is gathering from, and where it goes on when a page of that is gone.
struct Gathering {
  const uint8_t* begin;
  const uint8_t* end;
  sigjmp_buf gone;
};

thread_local Gathering* gathering = nullptr;
std::mutex installing;
struct sigaction previous;  // whose turn it is where no gather is concerned
volatile sig_atomic_t passed_on = 0;

void on_bus_error(int number, siginfo_t* info, void* context) {
  Gathering* const here = gathering;
  const auto* const place = static_cast<const uint8_t*>(info->si_addr);
  if (here != nullptr && info->si_code > 0 && place >= here->begin && place < here->end) {
    siglongjmp(here->gone, 1);
  }
  // A handler that was put in front of this one and passes on to it would be called again, without end.
  const bool first = !passed_on;
  passed_on = 1;
  if (first && previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(number, info, context);
  } else if (first && previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  } else {
    signal(number, SIG_DFL);
    raise(number);  // it waits until this handler returns, and then ends the process
  }
}

void install_handler() {
  const std::lock_guard<std::mutex> lock(installing);
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

}  // namespace

bool gather_mapped(const uint8_t* table, int64_t num_rows, int64_t row_bytes, const int64_t* ids,
                   const int64_t* positions, int64_t count, uint8_t* out, int64_t num_out) {
  install_handler();
  struct Lease {
    ~Lease() { gathering = nullptr; }
  } lease;
  Gathering here;
  here.begin = table;
  here.end = table + num_rows * row_bytes;
  if (sigsetjmp(here.gone, 1) != 0) return false;
  gathering = &here;
  // Pages are read after all checks, by loops that own nothing: no destructor is left out by a jump.
  gather_rows(table, num_rows, row_bytes, ids, positions, count, out, num_out);
  return true;
}

}  // namespace lg
