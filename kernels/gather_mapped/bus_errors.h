// bus_errors.h: what becomes of a read of a page that a mapped file no longer has (SIGBUS).
//
//   guarded(begin, end, read)    runs read(); false where a page of [begin, end) was gone. What read() owns
//                                is then not destroyed, so it must own nothing while it reads there.
//   watch_map(begin, end, name)  any other such read ends the process, as it would have; before that, it is
//                                told on stderr which file it was. At most kWatched maps, the newest.
//   unwatch_map(number)          by what watch_map returned, before the map goes
//
// All other SIGBUS go to whoever handled them before, or end the process. The handler is there from the
// first call on; where others install one later, the next call puts it back in front of theirs.
#pragma once

#include <setjmp.h>

#include <cstdint>
#include <string>

namespace lg {

constexpr int kWatched = 256;

// What a thread is reading, and where it goes on when a page of that is gone.
struct GuardedRead {
  const uint8_t* begin;
  const uint8_t* end;
  sigjmp_buf gone;
};

void install_bus_handler();
void set_guarded(GuardedRead* read);

template <class Read>
bool guarded(const uint8_t* begin, const uint8_t* end, const Read& read) {
  install_bus_handler();
  struct Lease {
    ~Lease() { set_guarded(nullptr); }
  } lease;
  GuardedRead here;
  here.begin = begin;
  here.end = end;
  if (sigsetjmp(here.gone, 1) != 0) return false;
  set_guarded(&here);
  read();
  return true;
}

int64_t watch_map(const uint8_t* begin, const uint8_t* end, const std::string& name);
void unwatch_map(int64_t number);

}  // namespace lg
