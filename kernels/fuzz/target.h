// target.h: a fuzz target is one function that makes a case of its choices, calls a kernel, and
// checks what comes out. One file in targets/ a kernel; being compiled is being run.
//
//   LG_FUZZ_TARGET(gather_rows) {            // choose: Choices&
//     ...
//     expect(out == wanted, "row ", i, " is wrong");
//   }
//
// A sanitizer's finding, a failed expectation, any exception that no kernel announces and a case
// that does not end are failures.
#pragma once

#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <vector>

#include "fuzz/choices.h"

namespace lg::fuzz {

struct Target {
  const char* name;
  void (*run)(Choices& choose);
  bool planted;  // a fault on purpose, which the driver must find: never part of a run over all
};

std::vector<Target>& registered_targets();

struct Registration {
  explicit Registration(Target target) { registered_targets().push_back(target); }
};

// One case. The instruction set is a choice, too: the machine's own number of them counts, results
// are equal.
void run_case(const Target& target, Choices& choose);

struct WrongResult : std::runtime_error {
  using runtime_error::runtime_error;
};

// What a call came to, of all that kernels announce (common/error.h).
enum class Outcome { kDone, kSeedError, kGraphFormatError, kSamplerConfigError, kCacheShareError };

Outcome outcome_of(const std::function<void()>& call);

// A part of a message. Of one type, since templates of streams take most of the time of compiling.
class Part {
 public:
  Part(const char* text) : kind_(kText), text_(text) {}
  Part(Outcome outcome);
  Part(double number) : kind_(kFloat), float_(number) {}
  template <class Integer, class = decltype(Integer() | 1)>
  Part(Integer number) : kind_(kInteger), integer_(int64_t(number)) {}

  void append_to(std::string& message) const;

 private:
  enum { kText, kFloat, kInteger } kind_;
  union {
    const char* text_;
    double float_;
    int64_t integer_;
  };
};

[[noreturn]] void fail_expectation(std::initializer_list<Part> otherwise);

template <class... Parts>
void expect(bool holds, const Parts&... otherwise) {
  if (!holds) fail_expectation({Part(otherwise)...});
}

}  // namespace lg::fuzz

#define LG_FUZZ_REGISTERED(name, planted)                    \
  static void run_##name(::lg::fuzz::Choices& choose);       \
  static const ::lg::fuzz::Registration name##_registration( \
      ::lg::fuzz::Target{#name, run_##name, planted});       \
  static void run_##name([[maybe_unused]] ::lg::fuzz::Choices& choose)

#define LG_FUZZ_TARGET(name) LG_FUZZ_REGISTERED(name, false)
#define LG_PLANTED_FAULT(name) LG_FUZZ_REGISTERED(name, true)
