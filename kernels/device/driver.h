// driver.h: CUDA's driver as this process finds it at run time, and the context of one device.
//
// No cuda.h takes part in the build: what is used of it is declared here, and compared with a real
// one by tests/cuda/test_device_driver.py. Thread-safe.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace lg::device {

using Status = int;                  // CUresult
using Address = unsigned long long;  // CUdeviceptr
using Context = void*;
using Module = void*;
using Function = void*;
using Stream = void*;  // nullptr is the default stream
using Event = void*;

constexpr Status kSuccess = 0;
constexpr Status kNotReady = 600;        // CUDA_ERROR_NOT_READY, of event_query
constexpr unsigned kBlockingEvent = 1;   // CU_EVENT_BLOCKING_SYNC: who waits for it sleeps
constexpr unsigned kUntimedEvent = 2;    // CU_EVENT_DISABLE_TIMING
constexpr unsigned kPortableMemory = 1;  // CU_MEMHOSTALLOC_PORTABLE: page-locked for all contexts
constexpr int kMaxSharedBytes = 8;       // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned kFreeShared = 48 << 10;  // bytes a block gets without that attribute

// ENTRY(member of Driver, name in libcuda, parameters). The names carry their versions; CUDA 11 to
// 13 export them all.
#define LG_DRIVER_ENTRIES(ENTRY)                                                                 \
  ENTRY(init, cuInit, (unsigned flags))                                                          \
  ENTRY(error_name, cuGetErrorName, (Status, const char** name))                                 \
  ENTRY(error_text, cuGetErrorString, (Status, const char** text))                               \
  ENTRY(device_get, cuDeviceGet, (int* device, int index))                                       \
  ENTRY(primary_retain, cuDevicePrimaryCtxRetain, (Context*, int device))                        \
  ENTRY(current_get, cuCtxGetCurrent, (Context*))                                                \
  ENTRY(current_set, cuCtxSetCurrent, (Context))                                                 \
  ENTRY(module_load, cuModuleLoadData, (Module*, const void* image))                             \
  ENTRY(module_function, cuModuleGetFunction, (Function*, Module, const char* name))             \
  ENTRY(function_set_attribute, cuFuncSetAttribute, (Function, int attribute, int value))        \
  ENTRY(launch_kernel, cuLaunchKernel,                                                           \
        (Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
         unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream, void** parameters,   \
         void** extra))                                                                          \
  ENTRY(memset_async, cuMemsetD8Async, (Address, unsigned char value, size_t num_bytes, Stream)) \
  ENTRY(copy_in, cuMemcpyHtoDAsync_v2, (Address to, const void* from, size_t num_bytes, Stream)) \
  ENTRY(copy_out, cuMemcpyDtoHAsync_v2, (void* to, Address from, size_t num_bytes, Stream))      \
  ENTRY(copy_within, cuMemcpyDtoDAsync_v2, (Address to, Address from, size_t num_bytes, Stream)) \
  ENTRY(event_create, cuEventCreate, (Event*, unsigned flags))                                   \
  ENTRY(event_record, cuEventRecord, (Event, Stream))                                            \
  ENTRY(event_query, cuEventQuery, (Event))                                                      \
  ENTRY(event_synchronize, cuEventSynchronize, (Event))                                          \
  ENTRY(event_destroy, cuEventDestroy_v2, (Event))                                               \
  ENTRY(stream_wait_event, cuStreamWaitEvent, (Stream, Event, unsigned flags))                   \
  ENTRY(stream_synchronize, cuStreamSynchronize, (Stream))                                       \
  ENTRY(host_alloc, cuMemHostAlloc, (void** memory, size_t num_bytes, unsigned flags))           \
  ENTRY(host_free, cuMemFreeHost, (void* memory))

class Driver;

// Has a device's context current in the calling thread for as long as it lives; the thread's own
// one, which torch knows its device by, is put back.
class [[nodiscard]] ContextScope {
 public:
  explicit ContextScope(const Driver& driver);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;

 private:
  const Driver& driver_;
  Context before_ = nullptr;
  bool is_changed_ = false;
};

// Neither its end nor the process's calls CUDA, which may have ended before: what it loads stays.
class Driver {
 public:
  // Retains the primary context of a device, by its number among those that the process sees, for
  // good: torch's own. Throws CudaUnavailableError where the library or an entry of it is missing.
  Driver(const std::string& library, int device);
  Driver(const Driver&) = delete;

  // Needed around whatever is called below. Throws ForkError in a child of the process that opened
  // the driver.
  ContextScope enter() const { return ContextScope(*this); }

  // Throws CudaCallError, with CUDA's name and text, where `status` is no success. `doing` is what
  // failed, such as "load a module".
  void check(Status status, const char* doing) const {
    if (status != kSuccess) fail_with(status, doing);
  }

  // The image is a cubin, or PTX; it is not needed afterwards.
  Module load(const std::string& image) const;
  Function function(Module module, const std::string& name) const;

  // Lets the blocks of a function's launches have so many bytes of dynamic shared memory. What was
  // allowed before stays allowed.
  void allow_shared(Function function, unsigned num_bytes) const;

  // The driver has copied the parameters when it returns.
  void launch(Function function, unsigned num_blocks, unsigned num_threads, unsigned shared_bytes,
              Stream stream, void** parameters) const;

#define LG_DRIVER_MEMBER(member, symbol, parameters) Status(*member) parameters = nullptr;
  LG_DRIVER_ENTRIES(LG_DRIVER_MEMBER)
#undef LG_DRIVER_MEMBER

 private:
  friend ContextScope;
  [[noreturn]] void fail_with(Status status, const char* doing) const;

  int device_;
  pid_t owner_;
  Context primary_ = nullptr;
  mutable std::mutex allowing_;
  mutable std::map<Function, unsigned>
      allowed_;  // shared bytes, where they are more than kFreeShared
};

}  // namespace lg::device
