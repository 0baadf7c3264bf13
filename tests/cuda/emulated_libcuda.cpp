// A libcuda.so.1 whose device is this process: its memory is the host's, and its kernels are those
// that kernels/emulate runs. A module's image is the path of such a library (host_build.py), and a
// function's name the text of its LG_INSTANTIATE.
//
// Deferred, every operation waits in its stream until the host waits. Then heads of streams run, one
// by one in an order that a seed draws, a stream's own order and its waits for events kept: what
// the host or another stream does too early shows in the bytes. Otherwise each runs at its call.
//
// It is stricter than a device: see what it refuses. The control entries at the end are for
// emulated_libcuda.py. Thread-safe; kernels run one at a time.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "emulated_streams.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace emulated;

const std::map<Status, const char*> kNames = {
    {kSuccess, "CUDA_SUCCESS"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND"},
    {kNotReady, "CUDA_ERROR_NOT_READY"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
};
constexpr int kDevices = 2;
constexpr unsigned kMostShared = 227 << 10;

struct Library {
  void* opened = nullptr;
  int (*launch)(const char*, unsigned, unsigned, unsigned, uint64_t, void**, char*, int) = nullptr;
  int (*parameters)(const char*, size_t*, int) = nullptr;
};

struct Kernel {
  const Library* library;
  std::string name;
  std::vector<size_t> parameter_bytes;
  unsigned shared_bytes = kFreeShared;
};

struct Parameters {
  std::vector<std::max_align_t> memory;
  std::vector<void*> pointers;
};

struct State {
  std::mutex mutex;
  pid_t owner = 0;  // that has called cuInit
  uint64_t launches = 0, seed = 0;
  std::map<std::string, int64_t> counts;
  int64_t fails_in = 0;  // calls; 0: none fails
  Status fails_with = kSuccess;
  std::atomic<double> call_us{0};
  Streams streams;
  std::map<void*, std::shared_ptr<Point>> events;
  std::map<void*, size_t> host_blocks;
  std::map<std::string, Library> libraries;
  std::set<void*> modules;
  std::map<void*, std::unique_ptr<Kernel>> functions;

  std::shared_ptr<Point> point(Event event) const {
    const auto found = events.find(event);
    if (found == events.end()) refuse(kInvalidHandle, "no such event, or it has been destroyed");
    return found->second;
  }

  Kernel& kernel(Function function) const {
    const auto found = functions.find(function);
    if (found == functions.end()) refuse(kInvalidHandle, "no such function");
    return *found->second;
  }
};

State& state = *new State;  // outlives all who call at the process's end
int contexts[kDevices];
thread_local Context current = nullptr;
thread_local Refusal last{kSuccess, ""};

void spend(double us) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::micro>(us);
  while (std::chrono::steady_clock::now() < end) {
  }
}

enum Needs { kNothing, kInit, kContext };

// The body of an entry.
template <class Work>
Status call(const char* name, Needs needs, Work work) {
  if (state.call_us > 0) spend(state.call_us);
  const std::lock_guard<std::mutex> lock(state.mutex);
  try {
    ++state.counts[name];
    if (state.fails_in > 0 && --state.fails_in == 0) {
      refuse(state.fails_with, std::string("as the test wants of ") + name);
    }
    if (needs >= kInit && state.owner != getpid())
      refuse(kNotInitialized, "cuInit, in this process");
    if (needs == kContext && !current) refuse(kInvalidContext, "the thread has no context");
    if (needs == kContext && state.streams.failure.status) throw state.streams.failure;
    return work();
  } catch (const Refusal& refusal) {
    last = refusal;
    return refusal.status;
  }
}

Bytes bytes_at(const void* begin, size_t size) { return {reinterpret_cast<uint64_t>(begin), size}; }
void* pointer(Address address) { return reinterpret_cast<void*>(address); }

std::shared_ptr<Parameters> copied(const Kernel& kernel, void** parameters) {
  auto copy = std::make_shared<Parameters>();
  constexpr size_t kUnit = sizeof(std::max_align_t);
  size_t num_units = 0;
  for (const size_t bytes : kernel.parameter_bytes) num_units += (bytes + kUnit - 1) / kUnit;
  copy->memory.resize(num_units);
  std::max_align_t* at = copy->memory.data();
  for (size_t p = 0; p < kernel.parameter_bytes.size(); ++p) {
    const size_t bytes = kernel.parameter_bytes[p];
    std::memcpy(at, parameters[p], bytes);
    copy->pointers.push_back(at);
    at += (bytes + kUnit - 1) / kUnit;
  }
  return copy;
}

}  // namespace

EXPORT Status cuInit(unsigned flags) {
  return call("cuInit", kNothing, [&] {
    if (flags) refuse(kInvalidValue, "flags have to be 0");
    if (state.owner && state.owner != getpid())
      refuse(kNotInitialized, "the child of a process that had CUDA");
    state.owner = getpid();
    return kSuccess;
  });
}

EXPORT Status cuGetErrorName(Status status, const char** name) {
  const auto found = kNames.find(status);
  *name = found == kNames.end() ? nullptr : found->second;
  return *name ? kSuccess : kInvalidValue;
}

// Of the calling thread's last error, why it came.
EXPORT Status cuGetErrorString(Status status, const char** text) {
  *text = status == last.status ? last.reason.c_str() : nullptr;
  return *text ? kSuccess : kInvalidValue;
}

EXPORT Status cuDeviceGet(int* device, int index) {
  return call("cuDeviceGet", kInit, [&] {
    if (index < 0 || index >= kDevices) refuse(kInvalidDevice, "there are 2 devices");
    *device = index;
    return kSuccess;
  });
}

EXPORT Status cuDevicePrimaryCtxRetain(Context* context, int device) {
  return call("cuDevicePrimaryCtxRetain", kInit, [&] {
    *context = &contexts[device];
    return kSuccess;
  });
}

EXPORT Status cuCtxGetCurrent(Context* context) {
  return call("cuCtxGetCurrent", kInit, [&] {
    *context = current;
    return kSuccess;
  });
}

EXPORT Status cuCtxSetCurrent(Context context) {
  return call("cuCtxSetCurrent", kInit, [&] {
    current = context;
    return kSuccess;
  });
}

EXPORT Status cuModuleLoadData(Module* module, const void* image) {
  return call("cuModuleLoadData", kContext, [&] {
    const std::string path(static_cast<const char*>(image));
    void* const opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened) refuse(kInvalidImage, dlerror());
    Library& library = state.libraries[path];
    library.opened = opened;
    library.launch = reinterpret_cast<decltype(library.launch)>(dlsym(opened, "lg_emulate_launch"));
    library.parameters =
        reinterpret_cast<decltype(library.parameters)>(dlsym(opened, "lg_emulate_parameters"));
    if (!library.launch || !library.parameters) refuse(kInvalidImage, "no emulated kernels");
    *module = &library;
    state.modules.insert(&library);
    return kSuccess;
  });
}

EXPORT Status cuModuleGetFunction(Function* function, Module module, const char* name) {
  return call("cuModuleGetFunction", kContext, [&] {
    if (!state.modules.count(module)) refuse(kInvalidHandle, "no such module");
    const Library& library = *static_cast<Library*>(module);
    std::string text(name);
    text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
    const int count = library.parameters(text.c_str(), nullptr, 0);
    if (count < 0) refuse(kNotFound, "no LG_INSTANTIATE(" + text + ")");
    auto kernel =
        std::make_unique<Kernel>(Kernel{&library, text, std::vector<size_t>(size_t(count))});
    library.parameters(text.c_str(), kernel->parameter_bytes.data(), count);
    *function = kernel.get();
    state.functions[kernel.get()] = std::move(kernel);
    return kSuccess;
  });
}

EXPORT Status cuFuncSetAttribute(Function function, int attribute, int value) {
  return call("cuFuncSetAttribute", kContext, [&] {
    if (attribute != kMaxSharedBytes || value < 0 || unsigned(value) > kMostShared) {
      refuse(kInvalidValue,
             "attribute " + std::to_string(attribute) + " of " + std::to_string(value));
    }
    state.kernel(function).shared_bytes = unsigned(value);
    return kSuccess;
  });
}

EXPORT Status cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, Stream stream, void** parameters,
                             void** extra) {
  return call("cuLaunchKernel", kContext, [&] {
    const Kernel& kernel = state.kernel(function);
    if (extra || !grid_x || grid_x >> 31 || grid_y != 1 || grid_z != 1 || !block_x ||
        block_x > 1024 || block_y != 1 || block_z != 1) {
      refuse(kInvalidValue, kernel.name + ": a grid that no device takes");
    }
    if (shared_bytes > std::max(kernel.shared_bytes, kFreeShared)) {
      refuse(kInvalidValue, kernel.name + ": more shared memory than it has been allowed");
    }
    ++state.counts[kernel.name];
    const uint64_t seed = (state.seed << 32) + state.launches++;
    auto given = copied(kernel, parameters);
    state.streams.add(
        stream, {[&kernel, grid_x, block_x, shared_bytes, seed, given] {
          char error[1024] = "";
          if (kernel.library->launch(kernel.name.c_str(), grid_x, block_x, shared_bytes, seed,
                                     given->pointers.data(), error, sizeof error)) {
            refuse(kLaunchFailed, kernel.name + ": " + error);
          }
        }});
    return kSuccess;
  });
}

EXPORT Status cuMemsetD8Async(Address to, unsigned char value, size_t num_bytes, Stream stream) {
  return call("cuMemsetD8Async", kContext, [&] {
    Operation operation{[=] { std::memset(pointer(to), value, num_bytes); }};
    operation.device = {{to, num_bytes}};
    state.streams.add(stream, operation);
    return kSuccess;
  });
}

EXPORT Status cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t num_bytes, Stream stream) {
  return call("cuMemcpyHtoDAsync_v2", kContext, [&] {
    Operation operation{[=] { std::memcpy(pointer(to), from, num_bytes); }};
    operation.device = {{to, num_bytes}};
    operation.host = bytes_at(from, num_bytes);
    state.streams.add(stream, operation);
    return kSuccess;
  });
}

EXPORT Status cuMemcpyDtoHAsync_v2(void* to, Address from, size_t num_bytes, Stream stream) {
  return call("cuMemcpyDtoHAsync_v2", kContext, [&] {
    Operation operation{[=] { std::memcpy(to, pointer(from), num_bytes); }};
    operation.device = {{from, num_bytes}};
    operation.host = bytes_at(to, num_bytes);
    state.streams.add(stream, operation);
    return kSuccess;
  });
}

EXPORT Status cuMemcpyDtoDAsync_v2(Address to, Address from, size_t num_bytes, Stream stream) {
  return call("cuMemcpyDtoDAsync_v2", kContext, [&] {
    if (num_bytes && Bytes{to, num_bytes}.meets({from, num_bytes})) {
      refuse(kInvalidValue, "a copy onto itself");
    }
    Operation operation{[=] { std::memcpy(pointer(to), pointer(from), num_bytes); }};
    operation.device = {{to, num_bytes}, {from, num_bytes}};
    state.streams.add(stream, operation);
    return kSuccess;
  });
}

EXPORT Status cuEventCreate(Event* event, unsigned flags) {
  return call("cuEventCreate", kContext, [&] {
    if (flags & ~(kBlockingEvent | kUntimedEvent)) refuse(kInvalidValue, "flags of an event");
    auto point = std::make_shared<Point>();
    *event = point.get();
    state.events[point.get()] = point;
    return kSuccess;
  });
}

EXPORT Status cuEventRecord(Event event, Stream stream) {
  return call("cuEventRecord", kContext, [&] {
    const std::shared_ptr<Point> point = state.point(event);
    const uint64_t record = ++point->recorded;
    state.streams.add(stream, {[=] { point->done = std::max(point->done, record); }});
    return kSuccess;
  });
}

EXPORT Status cuEventQuery(Event event) {
  return call("cuEventQuery", kContext, [&] {
    const std::shared_ptr<Point> point = state.point(event);
    if (point->done < point->recorded) state.streams.step();
    return point->done < point->recorded ? kNotReady : kSuccess;
  });
}

EXPORT Status cuEventSynchronize(Event event) {
  return call("cuEventSynchronize", kContext, [&] {
    const std::shared_ptr<Point> point = state.point(event);
    state.streams.run_until([&] { return point->done >= point->recorded; });
    return kSuccess;
  });
}

// Operations that wait for it go on to.
EXPORT Status cuEventDestroy_v2(Event event) {
  return call("cuEventDestroy_v2", kContext, [&] {
    state.point(event);
    state.events.erase(event);
    return kSuccess;
  });
}

EXPORT Status cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  return call("cuStreamWaitEvent", kContext, [&] {
    if (flags) refuse(kInvalidValue, "flags of a wait");
    Operation operation{[] {}};
    operation.after = state.point(event);
    operation.record = operation.after->recorded;  // a later record is not waited for
    state.streams.add(stream, operation);
    return kSuccess;
  });
}

EXPORT Status cuStreamSynchronize(Stream stream) {
  return call("cuStreamSynchronize", kContext, [&] {
    state.streams.run_until([&] { return state.streams.queues[stream].empty(); });
    return kSuccess;
  });
}

EXPORT Status cuMemHostAlloc(void** memory, size_t num_bytes, unsigned flags) {
  return call("cuMemHostAlloc", kContext, [&] {
    if (!num_bytes || flags & ~7u) refuse(kInvalidValue, "bytes or flags of host memory");
    const size_t page = 4096, rounded = (num_bytes + page - 1) / page * page;
    *memory = std::aligned_alloc(page, rounded);
    if (!*memory) refuse(2, "the host has no memory");
    std::memset(*memory, 0xA5, rounded);  // nobody has written it
    state.host_blocks[*memory] = num_bytes;
    return kSuccess;
  });
}

EXPORT Status cuMemFreeHost(void* memory) {
  return call("cuMemFreeHost", kContext, [&] {
    const auto found = state.host_blocks.find(memory);
    if (found == state.host_blocks.end()) refuse(kInvalidValue, "no such host memory");
    const Bytes block = bytes_at(memory, found->second);
    if (state.streams.needs(block)) {
      refuse(kInvalidValue, "host memory is freed before it has been copied");
    }
    std::free(memory);
    state.host_blocks.erase(found);
    return kSuccess;
  });
}

#define LG_SAME(member, symbol, parameters) \
  static_assert(std::is_same_v<decltype(&symbol), decltype(Driver::member)>);
LG_DRIVER_ENTRIES(LG_SAME)

// Forgets what is queued, counted, wanted, owned and failed, and the calling thread's context.
// Events, host memory and modules stay.
EXPORT void lg_emulated_reset(int is_deferred, uint64_t seed) {
  current = nullptr;
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.streams = Streams();
  state.streams.is_deferred = is_deferred;
  state.seed = state.streams.random = seed;
  state.launches = 0;
  state.counts.clear();
  state.fails_in = 0;
  state.call_us = 0;
}

// Calls of an entry, or launches of a kernel.
EXPORT int64_t lg_emulated_count(const char* name) {
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto found = state.counts.find(name);
  return found == state.counts.end() ? 0 : found->second;
}

EXPORT void lg_emulated_forget_counts() {
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.counts.clear();
}

// Each call computes for so long.
EXPORT void lg_emulated_spend(double us) {
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.call_us = us;
}

// The call-th call from now on does nothing and returns `status`.
EXPORT void lg_emulated_fail(int64_t call, Status status) {
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.fails_in = call;
  state.fails_with = status;
}

// From the first range on, copies and memsets of other device memory are refused.
EXPORT void lg_emulated_own(uint64_t begin, uint64_t num_bytes) {
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.streams.owned.push_back({begin, num_bytes});
}

EXPORT void lg_emulated_disown(uint64_t begin) {
  const std::lock_guard<std::mutex> lock(state.mutex);
  for (Bytes& range : state.streams.owned) {
    if (range.begin == begin) range.size = 0;
  }
}

// Queued operations, events and blocks of host memory that there are.
EXPORT void lg_emulated_held(int64_t* operations, int64_t* events, int64_t* host_blocks) {
  const std::lock_guard<std::mutex> lock(state.mutex);
  *operations = int64_t(state.streams.num_waiting());
  *events = int64_t(state.events.size());
  *host_blocks = int64_t(state.host_blocks.size());
}
