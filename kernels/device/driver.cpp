#include "device/driver.h"

#include <dlfcn.h>

#include "common/error.h"

namespace lg::device {

ContextScope::ContextScope(const Driver& driver) : driver_(driver) {
  if (getpid() != driver.owner_) {
    fail<ForkError>("CUDA does not survive a fork: process ", driver.owner_, " opened device ",
                    driver.device_, ", and this is its child ", getpid(),
                    ". Start processes that use a GPU with the start method 'spawn'.");
  }
  driver.check(driver.current_get(&before_), "ask for the thread's context");
  if (before_ == driver.primary_) return;
  driver.check(driver.current_set(driver.primary_), "enter the device's context");
  is_changed_ = true;
}

ContextScope::~ContextScope() {
  // A failure has been reported by the calls in between, or is by the next.
  if (is_changed_) driver_.current_set(before_);
}

Driver::Driver(const std::string& library, int device) : device_(device), owner_(getpid()) {
  // RTLD_LOCAL: its names are for nobody else. Never closed: CUDA keeps threads of its own.
  void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened) {
    const char* reason = dlerror();
    fail<CudaUnavailableError>("CUDA's driver cannot be opened (",
                               std::string(reason ? reason : library),
                               "). Install NVIDIA's driver, and check nvidia-smi.");
  }
  std::string missing;
#define LG_DRIVER_FIND(member, symbol, parameters)                     \
  member = reinterpret_cast<decltype(member)>(dlsym(opened, #symbol)); \
  if (!member) missing += missing.empty() ? #symbol : ", " #symbol;
  LG_DRIVER_ENTRIES(LG_DRIVER_FIND)
#undef LG_DRIVER_FIND
  if (!missing.empty()) {
    fail<CudaUnavailableError>("CUDA's driver ", library, " lacks ", missing,
                               ". Install one of CUDA 12 or later.");
  }
  check(init(0), "begin");
  int handle = 0;
  check(device_get(&handle, device), "find the device");
  check(primary_retain(&primary_, handle), "make the device's context");
}

Module Driver::load(const std::string& image) const {
  const ContextScope context(*this);
  Module module = nullptr;
  check(module_load(&module, image.c_str()), "load a module");  // PTX ends with the string's NUL
  return module;
}

Function Driver::function(Module module, const std::string& name) const {
  const ContextScope context(*this);
  Function function = nullptr;
  check(module_function(&function, module, name.c_str()), "find a kernel");
  return function;
}

void Driver::allow_shared(Function function, unsigned num_bytes) const {
  if (num_bytes <= kFreeShared) return;
  // Held meanwhile: of two threads, the one that asks for less must not have the last word.
  const std::lock_guard<std::mutex> lock(allowing_);
  unsigned& allowed = allowed_[function];
  if (num_bytes <= allowed) return;
  const ContextScope context(*this);
  check(function_set_attribute(function, kMaxSharedBytes, int(num_bytes)),
        "allow a kernel more shared memory");
  allowed = num_bytes;
}

void Driver::launch(Function function, unsigned num_blocks, unsigned num_threads,
                    unsigned shared_bytes, Stream stream, void** parameters) const {
  const ContextScope context(*this);
  allow_shared(function, shared_bytes);
  check(launch_kernel(function, num_blocks, 1, 1, num_threads, 1, 1, shared_bytes, stream,
                      parameters, nullptr),
        "start a kernel");
}

void Driver::fail_with(Status status, const char* doing) const {
  const char *name = nullptr, *text = nullptr;
  // An error newer than the driver's list has neither.
  if (error_name(status, &name) != kSuccess || !name) name = "CUDA_ERROR_UNKNOWN";
  if (error_text(status, &text) != kSuccess || !text) text = "no text";
  throw CudaCallError(name, joined("CUDA's driver cannot ", doing, " on device ", device_, ": ",
                                   name, " (", status, ", ", text, ")."));
}

}  // namespace lg::device
