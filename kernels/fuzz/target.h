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

#include <vector>

#include "common/error.h"
#include "common/isa.h"
#include "fuzz/choices.h"

namespace lg::fuzz {

struct Target {
  const char* name;
  void (*run)(Choices& choose);
  bool planted;  // a fault on purpose, which the driver must find: never part of a run over all
};

inline std::vector<Target>& registered_targets() {
  static std::vector<Target> targets;
  return targets;
}

struct Registration {
  explicit Registration(Target target) { registered_targets().push_back(target); }
};

// One case: the instruction set is a choice, too.
inline void run_case(const Target& target, Choices& choose) {
  set_isa(Isa(choose.below(int(best_isa()) + 1)));
  target.run(choose);
}

struct WrongResult : std::runtime_error {
  using runtime_error::runtime_error;
};

template <class... Parts>
void expect(bool holds, const Parts&... otherwise) {
  if (!holds) fail<WrongResult>(otherwise...);
}

// What a call came to, of all that kernels announce (common/error.h).
enum class Outcome { kDone, kSeedError, kGraphFormatError, kSamplerConfigError };

template <class Call>
Outcome outcome_of(Call&& call) {
  try {
    call();
  } catch (const SeedError&) {
    return Outcome::kSeedError;
  } catch (const GraphFormatError&) {
    return Outcome::kGraphFormatError;
  } catch (const SamplerConfigError&) {
    return Outcome::kSamplerConfigError;
  }
  return Outcome::kDone;
}

inline std::ostream& operator<<(std::ostream& out, Outcome outcome) {
  constexpr const char* kNames[] = {"done", "SeedError", "GraphFormatError", "SamplerConfigError"};
  return out << kNames[int(outcome)];
}

}  // namespace lg::fuzz

#define LG_FUZZ_REGISTERED(name, planted)                    \
  static void run_##name(::lg::fuzz::Choices& choose);       \
  static const ::lg::fuzz::Registration name##_registration( \
      ::lg::fuzz::Target{#name, run_##name, planted});       \
  static void run_##name([[maybe_unused]] ::lg::fuzz::Choices& choose)

#define LG_FUZZ_TARGET(name) LG_FUZZ_REGISTERED(name, false)
#define LG_PLANTED_FAULT(name) LG_FUZZ_REGISTERED(name, true)
