#include <nanobind/stl/string.h>

#include <cstring>

#include "bind/bind.h"
#include "device/driver.h"

namespace lg::bind {
namespace {

using device::Driver;

// Handles cross as integers.
uint64_t number(void* handle) { return reinterpret_cast<uint64_t>(handle); }
void* handle(uint64_t number) { return reinterpret_cast<void*>(number); }

// `memory` holds the parameters, which begin at `offsets`, a uint32_t each: ops/ has read both from
// the kernel's source.
//
// Without the GIL, although most launches take but 2 us: one waits where the device's queue is full
// (some 1,000 launches), or while another thread allocates or loads.
void launch(const Driver& driver, uint64_t function, unsigned num_blocks, unsigned num_threads,
            unsigned shared_bytes, uint64_t stream, const nb::bytes& memory,
            const nb::bytes& offsets) {
  // They begin at a multiple of 16, as all that Python allocates.
  char* const begin = const_cast<char*>(memory.c_str());
  std::vector<void*> parameters(offsets.size() / sizeof(uint32_t));
  for (size_t p = 0; p < parameters.size(); ++p) {
    uint32_t offset;
    std::memcpy(&offset, offsets.c_str() + p * sizeof offset, sizeof offset);
    parameters[p] = begin + offset;
  }
  const nb::gil_scoped_release no_gil;
  driver.launch(handle(function), num_blocks, num_threads, shared_bytes, handle(stream),
                parameters.data());
}

}  // namespace

LG_BIND(m) {
  nb::class_<Driver>(m, "DeviceDriver")
      .def(nb::init<const std::string&, int>(), "library"_a, "device"_a, NoGil())
      .def(
          "load",
          [](const Driver& driver, const nb::bytes& image) {
            const std::string copied(image.c_str(), image.size());
            const nb::gil_scoped_release no_gil;
            return number(driver.load(copied));
          },
          "image"_a)
      .def(
          "function",
          [](const Driver& driver, uint64_t module, const std::string& name) {
            return number(driver.function(handle(module), name));
          },
          "module"_a, "name"_a, NoGil())
      .def("launch", &launch, "function"_a, "blocks"_a, "threads"_a, "shared_bytes"_a, "stream"_a,
           "memory"_a, "offsets"_a);
}

}  // namespace lg::bind
