#include <nanobind/stl/string.h>

#include "bind/bind.h"
#include "edge_spill/edge_spill.h"

namespace lg::bind {
namespace {

using Times = Maybe<int64_t>;

template <class Index, class Id, class Class>
void bind_read(Class& spill) {
  spill.def(
      "read",
      [](const EdgeSpill& from, int64_t bucket, int64_t first, Array<Index> list, Array<Index> src,
         std::optional<Array<int64_t>> time, Array<Id> id, std::optional<Bytes> weight) {
        from.read(
            bucket, first, int64_t(list.size()),
            RecordColumns<Index, Id>{list.data(), src.data(), data(time), id.data(), data(weight)});
      },
      "bucket"_a, "first"_a, "list"_a.noconvert(), "src"_a.noconvert(), "time"_a.noconvert().none(),
      "id"_a.noconvert(), "weight"_a.noconvert().none(), NoGil());
}

}  // namespace

LG_BIND(m) {
  m.attr("NO_TIME") = kNoTime;
  nb::class_<EdgeSpill> spill(m, "EdgeSpill");
  spill
      .def(
          "__init__",
          [](EdgeSpill* self, int fd, const std::string& name, int64_t num_lists, int shift,
             int64_t extent_bytes, bool has_time, int id_bytes, int weight_bytes) {
            new (self) EdgeSpill(fd, name, num_lists, shift, extent_bytes,
                                 {has_time, id_bytes, weight_bytes});
          },
          "fd"_a, "name"_a, "num_lists"_a, "shift"_a, "extent_bytes"_a, "has_time"_a, "id_bytes"_a,
          "weight_bytes"_a)
      .def(
          "add",
          [](EdgeSpill& to, Array<const int32_t> src, Array<const int32_t> dst, Times time,
             Maybe<uint8_t> weight, Times source_time, int64_t first_src, int64_t first_list,
             int64_t step, int64_t first_id) {
            return to.add({src.data(), dst.data(), data(time), data(weight), data(source_time),
                           int64_t(src.size()), first_src, first_list, step, first_id});
          },
          "src"_a.noconvert(), "dst"_a.noconvert(), "time"_a.noconvert().none(),
          "weight"_a.noconvert().none(), "source_time"_a.noconvert().none(), "first_src"_a,
          "first_list"_a, "step"_a, "first_id"_a, NoGil())
      .def("finish", &EdgeSpill::finish, NoGil())
      .def_prop_ro("num_buckets", &EdgeSpill::num_buckets)
      .def_prop_ro("num_bytes", &EdgeSpill::num_bytes)
      .def(
          "bucket",
          [](const EdgeSpill& of, int64_t number) {
            const EdgeSpill::Bucket& bucket = of.bucket(number);
            return nb::make_tuple(bucket.first_list, bucket.num_lists, bucket.num_records);
          },
          "number"_a)
      .def(
          "split",
          [](EdgeSpill& of, int64_t number, bool by_source) {
            return of.split(number, by_source ? EdgeSpill::Key::kSource : EdgeSpill::Key::kTime);
          },
          "number"_a, "by_source"_a, NoGil())
      .def("release", &EdgeSpill::release, "number"_a, NoGil());
  bind_read<int32_t, int32_t>(spill);
  bind_read<int32_t, int64_t>(spill);
  bind_read<int64_t, int32_t>(spill);
  bind_read<int64_t, int64_t>(spill);
}

}  // namespace lg::bind
