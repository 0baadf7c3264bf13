#include "bind/bind.h"
#include "dynamic_cache/dynamic_cache.h"

namespace lg::bind {
namespace {

using Ids = Array<const int64_t>;

// The views must outlive the request.
CacheRequest cache_request(const Ids& ids, const std::optional<Ids>& positions, const Bytes& out,
                           int64_t num_out) {
  return {ids.data(), data(positions), int64_t(ids.size()), out.data(), num_out};
}

}  // namespace

LG_BIND(m) {
  nb::class_<DynamicCache>(m, "DynamicCache")
      .def(
          "__init__",
          [](DynamicCache* self, int64_t num_nodes, int64_t num_slots, int64_t row_bytes,
             size_t eviction, std::optional<Bytes> memory) {
            const CacheShape shape{num_nodes, num_slots, row_bytes, kEvictions[eviction]};
            new (self) DynamicCache(shape, data(memory));
          },
          // The memory lives as long as the cache.
          "num_nodes"_a, "num_slots"_a, "row_bytes"_a, "eviction"_a, "memory"_a.noconvert().none(),
          nb::keep_alive<1, 6>())
      .def(
          "read",
          [](DynamicCache& self, Ids ids, std::optional<Ids> positions, Bytes out, int64_t num_out,
             Array<int64_t> missed_ids, Array<int64_t> missed_positions) {
            return self.read(cache_request(ids, positions, out, num_out), missed_ids.data(),
                             missed_positions.data());
          },
          "ids"_a.noconvert(), "positions"_a.noconvert().none(), "out"_a.noconvert(), "num_out"_a,
          "missed_ids"_a.noconvert(), "missed_positions"_a.noconvert(), NoGil())
      .def(
          "admit",
          [](DynamicCache& self, Ids ids, std::optional<Ids> positions, Bytes out,
             int64_t num_out) { self.admit(cache_request(ids, positions, out, num_out)); },
          "ids"_a.noconvert(), "positions"_a.noconvert().none(), "out"_a.noconvert(), "num_out"_a,
          NoGil())
      .def(
          "visit",
          [](DynamicCache& self, Ids ids) { return self.visit(ids.data(), int64_t(ids.size())); },
          "ids"_a.noconvert(), NoGil())
      .def(
          "contains",
          [](DynamicCache& self, Ids ids, Bytes has) {
            self.contains(ids.data(), int64_t(ids.size()), has.data());
          },
          "ids"_a.noconvert(), "has"_a.noconvert(), NoGil())
      .def_prop_ro("num_bytes", &DynamicCache::num_bytes);
  m.def(
      "cache_block_bytes",
      [](int64_t num_nodes, int64_t num_slots, int64_t row_bytes, size_t eviction) {
        return CacheShape{num_nodes, num_slots, row_bytes, kEvictions[eviction]}.block_bytes();
      },
      "num_nodes"_a, "num_slots"_a, "row_bytes"_a, "eviction"_a);
  m.def("evictions", [] {
    nb::list rules;
    for (const Eviction& each : kEvictions) {
      rules.append(nb::make_tuple(each.name, each.slot_bytes()));
    }
    return rules;
  });
}

}  // namespace lg::bind
