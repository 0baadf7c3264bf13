// main.cpp: runs fuzz cases, by number, until a time or a number of cases is over.
//
//   fuzz [--seconds S] [--cases N] [--seed N] [--limit S] [--target NAME]
//   fuzz --target NAME [--seed N] --case N       one case again, as a failure names it
//   fuzz --list | --list-planted                  names of targets; of faults that must be found
//
// Every target runs cases 0, 1, 2, ... of the seed. The first failure ends the run, on stderr and
// with a status that is not 0. A case may take S seconds of processor time (--limit).
//
// With clang, LG_LIBFUZZER makes a libFuzzer target of this file: its first byte names the target.
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fuzz/target.h"

namespace lg::fuzz {
namespace {

// In the order of their names: that of registration is the linker's.
std::vector<Target> targets(bool planted) {
  std::vector<Target> chosen;
  for (const Target& target : registered_targets()) {
    if (target.planted == planted) chosen.push_back(target);
  }
  std::sort(chosen.begin(), chosen.end(),
            [](const Target& a, const Target& b) { return std::strcmp(a.name, b.name) < 0; });
  return chosen;
}

}  // namespace
}  // namespace lg::fuzz

#ifdef LG_LIBFUZZER

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<lg::fuzz::Target> targets = lg::fuzz::targets(false);
  if (size == 0) return 0;
  lg::fuzz::Choices choose(data + 1, size - 1);
  run_case(targets[data[0] % targets.size()], choose);
  return 0;
}

#else

// So that a finding ends in SIGABRT, where the case is named.
extern "C" const char* __asan_default_options() {
  return "abort_on_error=1:max_allocation_size_mb=4096";
}
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

namespace lg::fuzz {
namespace {

struct Options {
  double seconds = 0;
  uint64_t cases = UINT64_MAX, seed = 0, first = 0;
  long limit = 20;
  std::string target;
};

// What runs now, for the handlers of signals.
struct Running {
  const char* program;
  const char* volatile target = nullptr;
  volatile uint64_t seed = 0, number = 0;
  volatile long seconds = 0;
  long limit = 0;
} running;

void name_case() {
  char text[512];
  const int length =
      running.target == nullptr
          ? 0
          : std::snprintf(text, sizeof text,
                          "\nfuzz: this was: %s --target %s --seed %llu --case %llu\n",
                          running.program, running.target, (unsigned long long)running.seed,
                          (unsigned long long)running.number);
  if (length > 0 && write(STDERR_FILENO, text, size_t(length)) < 0) _exit(1);
}

void on_abort(int) {
  name_case();
  std::signal(SIGABRT, SIG_DFL);
  std::raise(SIGABRT);
}

void on_second(int) {
  if (++running.seconds < running.limit) return;
  constexpr char kText[] = "fuzz: a case does not end\n";
  if (write(STDERR_FILENO, kText, sizeof kText - 1) < 0) _exit(1);
  std::abort();
}

void run(const Target& target, uint64_t seed, uint64_t number) {
  running.target = target.name;
  running.seed = seed;
  running.number = number;
  running.seconds = 0;
  try {
    Choices choose(seed, number);
    run_case(target, choose);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz: %s: %s\n", target.name, error.what());
    std::abort();
  }
  running.target = nullptr;
}

[[noreturn]] void usage(const char* problem, const char* value) {
  std::fprintf(stderr, "fuzz: %s %s. See the head of kernels/fuzz/main.cpp.\n", problem, value);
  std::exit(2);
}

Options parse(int count, char** arguments) {
  Options options;
  bool bounded = false;
  for (int i = 1; i < count; i += 2) {
    const std::string name = arguments[i];
    if (name == "--list" || name == "--list-planted") {
      for (const Target& target : targets(name != "--list")) std::puts(target.name);
      std::exit(0);
    }
    if (i + 1 == count) usage("no value for", arguments[i]);
    const char* value = arguments[i + 1];
    char* end = nullptr;
    if (name == "--target") {
      options.target = value;
      continue;
    } else if (name == "--seconds") {
      options.seconds = std::strtod(value, &end);
      bounded = true;
    } else if (name == "--cases") {
      options.cases = std::strtoull(value, &end, 10);
      bounded = true;
    } else if (name == "--seed") {
      options.seed = std::strtoull(value, &end, 10);
    } else if (name == "--limit") {
      options.limit = std::strtol(value, &end, 10);
    } else if (name == "--case") {
      options.first = std::strtoull(value, &end, 10);
      options.cases = 1;
      bounded = true;
    } else {
      usage("unknown option", arguments[i]);
    }
    if (*value == '\0' || *end != '\0') usage("not a number:", value);
  }
  if (!bounded) options.seconds = 10;
  return options;
}

std::vector<Target> chosen_targets(const std::string& name) {
  if (name.empty()) return targets(false);
  for (const bool planted : {false, true}) {
    for (const Target& target : targets(planted)) {
      if (name == target.name) return {target};
    }
  }
  usage("no target", name.c_str());
}

int fuzz(const Options& options) {
  using Clock = std::chrono::steady_clock;
  const std::vector<Target> chosen = chosen_targets(options.target);
  const auto begin = Clock::now();
  double seconds = 0;
  uint64_t done = 0;
  for (; done < options.cases && (options.seconds == 0 || seconds < options.seconds); ++done) {
    for (const Target& target : chosen) run(target, options.seed, options.first + done);
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  std::printf("fuzz: %llu cases of %zu targets in %.1f s, %.0f a second (seed %llu): no finding\n",
              (unsigned long long)(done * chosen.size()), chosen.size(), seconds,
              double(done * chosen.size()) / seconds, (unsigned long long)options.seed);
  return 0;
}

}  // namespace
}  // namespace lg::fuzz

int main(int count, char** arguments) {
  using namespace lg::fuzz;
  const Options options = parse(count, arguments);
  running.program = arguments[0];
  running.limit = options.limit;
  std::signal(SIGABRT, on_abort);
  std::signal(SIGPROF, on_second);
  const itimerval every_second{{1, 0}, {1, 0}};  // of processor time: a busy machine is no fault
  setitimer(ITIMER_PROF, &every_second, nullptr);
  return fuzz(options);
}

#endif
