#include <nanobind/stl/tuple.h>

#include <cstring>

#include "bind/bind.h"
#include "common/error.h"
#include "device/plan.h"

namespace lg::bind {
namespace {

using device::Plan;

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

std::vector<uint64_t> words_of(const nb::bytes& memory) {
  std::vector<uint64_t> words((memory.size() + 7) / 8);
  std::memcpy(words.data(), memory.data(), memory.size());
  return words;
}

const uint64_t* fields_of(const std::vector<uint64_t>& fields) {
  if (fields.size() != device::kNumFields) {
    fail<SamplerConfigError>(fields.size(), " fields of a batch were given, but a plan has ",
                             uint64_t(device::kNumFields), ".");
  }
  return fields.data();
}

}  // namespace

LG_BIND(m) {
  using Pieces = std::vector<std::tuple<uint64_t, uint32_t, uint32_t>>;
  using Patches = std::vector<std::tuple<uint32_t, uint32_t, uint32_t>>;
  using Moves = std::vector<std::tuple<uint32_t, uint64_t>>;
  using Tables = std::vector<std::tuple<uint64_t, uint64_t>>;
  using Inputs = std::vector<std::tuple<uint64_t, uint64_t, bool, uint64_t>>;
  nb::class_<Plan>(m, "BatchPlan")
      .def(
          "__init__",
          [](Plan* self, const device::Driver& driver, uint64_t zero_bytes, uint64_t words_at,
             uint32_t num_words, const Pieces& pieces) {
            std::vector<device::Piece> own;
            for (const auto& [item_bytes, word, more] : pieces)
              own.push_back({item_bytes, word, more});
            new (self) Plan(driver, zero_bytes, words_at, num_words, std::move(own));
          },
          "driver"_a, "zero_bytes"_a, "words_at"_a, "num_words"_a, "pieces"_a,
          nb::keep_alive<1, 2>())
      .def(
          "add",
          [](Plan& self, uint64_t function, uint32_t blocks, uint32_t threads,
             uint32_t shared_bytes, const nb::bytes& memory, std::vector<uint32_t> offsets,
             const Patches& patches, const Moves& moved) {
            device::Launch launch{
                pointer(function),  blocks, threads, shared_bytes, words_of(memory),
                std::move(offsets), {},     {}};
            const size_t size = launch.memory.size() * sizeof(uint64_t);
            bool fits = true;
            for (const auto& [at, field, bytes] : patches) {
              fits = fits && field < device::kNumFields && bytes <= 8 && size_t(at) + bytes <= size;
              launch.patches.push_back({at, field, bytes});
            }
            for (const auto& [at, offset] : moved) {
              fits = fits && size_t(at) + 8 <= size;
              launch.moved.push_back({at, offset});
            }
            for (const uint32_t offset : launch.offsets) fits = fits && offset < size;
            if (!fits)
              fail<SamplerConfigError>("A launch changes memory beyond its ", size, " bytes.");
            self.add(std::move(launch));
          },
          "function"_a, "blocks"_a, "threads"_a, "shared_bytes"_a, "memory"_a, "offsets"_a,
          "patches"_a, "moved"_a)
      .def("bind", &Plan::bind, "scratch"_a)
      .def(
          "make",
          [](Plan& self, const std::vector<uint64_t>& fields, const Tables& tables,
             const Inputs& inputs, uint64_t staging, uint64_t words, uint64_t stream) {
            std::vector<device::Fill> fills;
            for (const auto& [begin, bytes] : tables) fills.push_back({begin, bytes});
            std::vector<device::Input> own;
            for (const auto& [from, bytes, is_output, offset] : inputs) {
              own.push_back({pointer(from), bytes, is_output, offset});
            }
            const uint64_t* const values = fields_of(fields);
            device::Made made;
            {
              const nb::gil_scoped_release no_gil;
              made = self.make(values, fills, own, static_cast<uint8_t*>(pointer(staging)),
                               static_cast<int64_t*>(pointer(words)), pointer(stream));
            }
            return std::make_tuple(std::move(made.words), std::move(made.places),
                                   made.needed_bytes);
          },
          "fields"_a, "tables"_a, "inputs"_a, "staging"_a, "words"_a, "stream"_a)
      .def(
          "copy_pieces",
          [](Plan& self, const std::vector<uint64_t>& fields, uint64_t stream) {
            const uint64_t* const values = fields_of(fields);
            const nb::gil_scoped_release no_gil;
            self.copy_pieces(values, pointer(stream));
          },
          "fields"_a, "stream"_a);
}

}  // namespace lg::bind
