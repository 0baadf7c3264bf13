// launch.h: kernels by the text of their LG_INSTANTIATE, and the function that launches them.
#pragma once

#include <sys/mman.h>

#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "emulate/machine.h"

namespace emulate {

using Run = void (*)(void** arguments);

struct Kernel {
  Run run;
  std::vector<size_t> parameter_bytes;
};

inline std::map<std::string, Kernel>& kernels() {
  static std::map<std::string, Kernel> known;
  return known;
}

template <class... Parameters, size_t... index>
void call(void (*kernel)(Parameters...), void** arguments, std::index_sequence<index...>) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "parameters go by their bytes");
  static_assert((sizeof(Parameters) + ... + 0) <= 4096, "a device takes so many");
  kernel(*static_cast<Parameters*>(arguments[index])...);
}

template <class... Parameters>
void call(void (*kernel)(Parameters...), void** arguments) {
  call(kernel, arguments, std::index_sequence_for<Parameters...>());
}

template <auto kernel>
void run(void** arguments) {
  call(kernel, arguments);
}

template <class... Parameters>
std::vector<size_t> parameter_bytes(void (*)(Parameters...)) {
  return {sizeof(Parameters)...};
}

struct Registered {
  Registered(std::string text, Kernel kernel) {
    text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
    kernels()[text] = std::move(kernel);
  }
};

inline bool run_grid(unsigned num_blocks, unsigned shared_bytes, uint64_t seed) {
  machine.random.state = seed;
  machine.dynamic_shared.resize(shared_bytes + kGuardBytes);
  std::vector<unsigned> order(num_blocks);
  std::iota(order.begin(), order.end(), 0u);
  for (size_t left = num_blocks; left > 1; --left) {
    std::swap(order[left - 1], order[machine.random.below(left)]);
  }
  for (const unsigned block : order) {
    blockIdx = {block, 0, 0};
    if (!run_block(shared_bytes)) return false;
  }
  return true;
}

inline std::string launch(const std::string& name, unsigned num_blocks, unsigned num_threads,
                          unsigned shared_bytes, uint64_t seed, void** arguments) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  const auto found = kernels().find(name);
  if (found == kernels().end()) return "no LG_INSTANTIATE(" + name + ")";
  if (!num_blocks || !num_threads || num_threads > kMaxThreads) {
    return "a launch of " + std::to_string(num_blocks) + " blocks of " +
           std::to_string(num_threads) +
           " threads: there has to be one of each, and at most 1024 threads";
  }
  if (!machine.stacks) {
    void* memory = mmap(nullptr, (kMaxThreads + 1) * kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return "no memory for the stacks of threads";
    machine.stacks = static_cast<unsigned char*>(memory) + kStackBytes;  // room to overrun
  }
  machine.kernel = found->second.run;
  machine.arguments = arguments;
  machine.num_threads = num_threads;
  machine.error.clear();
  gridDim = {num_blocks, 1, 1};
  blockDim = {num_threads, 1, 1};
  if (!run_grid(num_blocks, shared_bytes, seed)) {  // its fibers stand in the middle of the kernel
    for (unsigned index = 0; index < kMaxThreads; ++index)
      machine.threads[index].is_started = false;
  }
  return machine.error;
}

}  // namespace emulate

#define LG_CONCAT_(a, b) a##b
#define LG_CONCAT(a, b) LG_CONCAT_(a, b)
#define LG_INSTANTIATE(...)                                                  \
  static const ::emulate::Registered LG_CONCAT(lg_registered_, __COUNTER__)( \
      #__VA_ARGS__,                                                          \
      {&::emulate::run<&::lg::__VA_ARGS__>, ::emulate::parameter_bytes(&::lg::__VA_ARGS__)});

// Returns 0, or 1 and what went wrong.
extern "C" __attribute__((used, visibility("default"))) inline int lg_emulate_launch(
    const char* name, unsigned num_blocks, unsigned num_threads, unsigned shared_bytes,
    uint64_t seed, void** arguments, char* error, int error_bytes) {
  const std::string text =
      emulate::launch(name, num_blocks, num_threads, shared_bytes, seed, arguments);
  snprintf(error, size_t(error_bytes), "%s", text.c_str());
  return !text.empty();
}

// Writes the bytes of each of a kernel's parameters, at most `most`. Returns how many it has, or -1
// where there is no such LG_INSTANTIATE.
extern "C" __attribute__((used, visibility("default"))) inline int lg_emulate_parameters(
    const char* name, size_t* bytes, int most) {
  const auto found = emulate::kernels().find(name);
  if (found == emulate::kernels().end()) return -1;
  const std::vector<size_t>& all = found->second.parameter_bytes;
  for (int p = 0; p < most && p < int(all.size()); ++p) bytes[p] = all[size_t(p)];
  return int(all.size());
}

// Where one __shared__ variable lies: host_build.py finds it among the library's symbols.
extern "C" __attribute__((used, visibility("default"))) inline void lg_emulate_shared(
    unsigned char* begin, size_t num_bytes) {
  emulate::machine.static_shared.push_back({begin, num_bytes});
}
