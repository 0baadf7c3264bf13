// signals.h: how a kernel that runs for seconds answers Ctrl-C.
//
// Its loops count their work, and look now and then. The bindings look for signals then, by a function that
// they set, and throw where a handler raises; a program without them looks at nothing. Kernels keep nothing
// of what they have written so far, as after any other error.
#pragma once

#include <cstdint>

namespace lg {

inline void (*look_at_signals)() = nullptr;

// On the stack of a kernel, beside its longest loop.
class SignalWatch {
 public:
  // After some work, in any unit that costs some 1 to 100 ns: an edge, a draw, a step.
  void after(int64_t work) {
    if ((left_ -= work) < 0) look();
  }

  // Calls call(begin, end) on pieces of [begin, end): for loops that nothing shall slow down.
  template <class Call>
  void in_pieces(int64_t begin, int64_t end, const Call& call) {
    for (; begin < end; begin += kWork) {
      const int64_t size = end - begin < kWork ? end - begin : kWork;
      call(begin, begin + size);
      after(size);
    }
  }

 private:
  static constexpr int64_t kWork = int64_t(1) << 16;

  __attribute__((noinline, cold)) void look() {
    left_ = kWork;
    if (look_at_signals) look_at_signals();
  }

  int64_t left_ = kWork;
};

}  // namespace lg
