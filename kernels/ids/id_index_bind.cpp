#include "bind/bind.h"
#include "ids/id_index.h"

namespace lg::bind {
namespace {

using Offsets64 = Array<const int64_t>;
using KeyBytes = Array<const uint8_t>;

template <class Offset>
TextIds<Offset> text_ids(const Array<const Offset>& offsets, const KeyBytes& bytes) {
  return {offsets.data(), bytes.data(), int64_t(bytes.size())};
}

template <class Index, class Class>
void bind_common(Class& bound) {
  bound.def(
           "add", [](Index& index, int64_t end) { index.add(end); }, "end"_a, NoGil())
      .def_prop_ro("num_repeats", [](const Index& index) { return index.repeats().size(); })
      .def(
          "repeats",
          [](const Index& index, Array<int64_t> rows, Array<int64_t> of) {
            for (size_t r = 0; r < rows.size(); ++r) {
              rows.data()[r] = index.repeats()[r].row;
              of.data()[r] = index.repeats()[r].of;
            }
          },
          "rows"_a.noconvert(), "of"_a.noconvert(), NoGil());
}

template <class Index, class Keys>
nb::tuple find(const Index& index, const Keys& keys, const Maybe<uint8_t>& is_null,
               const Array<int32_t>& rows) {
  const auto found = [&] {
    nb::gil_scoped_release no_gil;
    return index.find(keys, data(is_null), int64_t(rows.size()), rows.data());
  }();
  return nb::make_tuple(found.num_unknown, found.num_null);
}

// The arrays must outlive the index.
using Integers = IdIndex<IntegerIds>;
using Texts = IdIndex<TextIds<int64_t>>;

template <class Offset, class Class>
void bind_find_text(Class& bound) {
  bound.def(
      "find",
      [](const Texts& index, Array<const Offset> offsets, KeyBytes bytes, Maybe<uint8_t> is_null,
         Array<int32_t> rows) { return find(index, text_ids(offsets, bytes), is_null, rows); },
      "offsets"_a.noconvert(), "bytes"_a.noconvert(), "is_null"_a.noconvert().none(),
      "rows"_a.noconvert());
}

}  // namespace

LG_BIND(m) {
  m.attr("MAX_IDS") = Texts::kMostIds;
  auto integers = nb::class_<Integers>(m, "IntegerIndex");
  integers
      .def(
          "__init__",
          [](Integers* self, Array<const int64_t> values, uint64_t key) {
            new (self) Integers({values.data()}, int64_t(values.size()), key);
          },
          "values"_a.noconvert(), "key"_a)
      .def(
          "find",
          [](const Integers& index, Array<const int64_t> values, Maybe<uint8_t> is_null,
             Array<int32_t> rows) { return find(index, IntegerIds{values.data()}, is_null, rows); },
          "values"_a.noconvert(), "is_null"_a.noconvert().none(), "rows"_a.noconvert());
  bind_common<Integers>(integers);
  auto texts = nb::class_<Texts>(m, "TextIndex");
  texts.def(
      "__init__",
      [](Texts* self, Offsets64 offsets, KeyBytes bytes, uint64_t key) {
        new (self) Texts(text_ids(offsets, bytes), int64_t(offsets.size()) - 1, key);
      },
      "offsets"_a.noconvert(), "bytes"_a.noconvert(), "key"_a);
  bind_find_text<int32_t>(texts);
  bind_find_text<int64_t>(texts);
  bind_common<Texts>(texts);
}

}  // namespace lg::bind
