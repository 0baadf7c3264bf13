// Ids that often differ in a byte or not at all, found as a map finds them.
#include "ids/id_index.h"

#include <map>
#include <string>

#include "fuzz/exact.h"
#include "fuzz/target.h"

namespace lg::fuzz {
namespace {

std::vector<std::string> words(Choices& choose, int64_t count) {
  std::vector<std::string> made;
  for (int64_t i = 0; i < count; ++i) {
    if (!made.empty() && choose.flag()) {
      made.push_back(made[size_t(choose.below(int64_t(made.size())))]);
      if (!made.back().empty() && choose.flag()) {
        made.back()[size_t(choose.below(int64_t(made.back().size())))] ^= 1;
      }
      continue;
    }
    made.emplace_back(size_t(choose.size(50)), 'a');
    for (char& letter : made.back()) letter = char(choose.below(256));
  }
  return made;
}

template <class Offset>
struct Packed {
  explicit Packed(const std::vector<std::string>& texts)
      : offsets(int64_t(texts.size()) + 1), bytes(total(texts)) {
    for (size_t i = 0; i < texts.size(); ++i) {
      std::copy(texts[i].begin(), texts[i].end(), bytes.data() + offsets[int64_t(i)]);
      offsets[int64_t(i) + 1] = offsets[int64_t(i)] + Offset(texts[i].size());
    }
  }
  static int64_t total(const std::vector<std::string>& texts) {
    int64_t sum = 0;
    for (const std::string& text : texts) sum += int64_t(text.size());
    return sum;
  }
  TextIds<Offset> ids() const { return {offsets.data(), bytes.data(), bytes.size()}; }

  Exact<Offset> offsets;
  Exact<uint8_t> bytes;
};

template <class Ids, class Keys, class Value>
void check(Choices& choose, const Ids& ids, const std::vector<Value>& held, const Keys& keys,
           const std::vector<Value>& wanted) {
  const int64_t count = int64_t(held.size()), num_keys = int64_t(wanted.size());
  IdIndex<Ids> index(ids, count, choose.wide());
  while (index.added() < count) index.add(index.added() + 1 + choose.below(count - index.added()));
  std::map<Value, int32_t> first;
  size_t repeats = 0;
  for (int32_t row = 0; row < count; ++row) {
    const auto [at, is_new] = first.insert({held[size_t(row)], row});
    if (is_new) continue;
    expect(repeats < index.repeats().size(), "row ", row, " is no repeat");
    const auto repeat = index.repeats()[repeats++];
    expect(repeat.row == row && repeat.of == at->second, "row ", row, " repeats ", repeat.of);
  }
  expect(repeats == index.repeats().size(), repeats, " repeats");
  Exact<uint8_t> is_null(num_keys);
  Exact<int32_t> rows(num_keys);
  for (int64_t k = 0; k < num_keys; ++k) is_null[k] = choose.one_in(8);
  const auto found =
      index.find(keys, choose.flag() ? is_null.data() : nullptr, num_keys, rows.data());
  int64_t unknown = 0, null = 0;
  for (int64_t k = 0; k < num_keys; ++k) {
    const auto at = first.find(wanted[size_t(k)]);
    const int32_t row = at == first.end() ? IdIndex<Ids>::kUnknown : at->second;
    const bool skipped = rows[k] == IdIndex<Ids>::kNull && is_null[k];
    expect(skipped || rows[k] == row, "key ", k, " is row ", rows[k], ", not ", row);
    null += skipped;
    unknown += rows[k] == IdIndex<Ids>::kUnknown;
  }
  expect(found.num_unknown == unknown && found.num_null == null, found.num_unknown, " unknown");
}

template <class Offset>
void check_texts(Choices& choose) {
  std::vector<std::string> held = words(choose, choose.size(300)), wanted = words(choose, 20);
  for (int64_t k = choose.size(200); k > 0 && !held.empty(); --k) {
    wanted.push_back(held[size_t(choose.below(int64_t(held.size())))]);
  }
  const Packed<int64_t> ids(held);
  Packed<Offset> keys(wanted);
  if (choose.one_in(8)) {
    const int64_t bad = choose.below(keys.offsets.size());
    keys.offsets[bad] =
        choose.flag() ? Offset(-1) : Offset(keys.bytes.size() + 1 + choose.below(9));
    IdIndex<TextIds<int64_t>> index(ids.ids(), int64_t(held.size()), 0);
    Exact<int32_t> rows(int64_t(wanted.size()));
    const Outcome outcome =
        outcome_of([&] { index.find(keys.ids(), nullptr, int64_t(wanted.size()), rows.data()); });
    expect(outcome == Outcome::kGraphFormatError, "a bad offset: ", outcome);
    return;
  }
  check(choose, ids.ids(), held, keys.ids(), wanted);
}

void check_integers(Choices& choose) {
  std::vector<int64_t> held(size_t(choose.size(500))), wanted(size_t(choose.size(500)));
  const int64_t most = choose.size(1000) + 1;
  for (int64_t& id : held) id = choose.below(most) << choose.below(2) * 50;
  for (int64_t& id : wanted) id = choose.below(most) << choose.below(2) * 50;
  const Exact<int64_t> ids(held), keys(wanted);
  check(choose, IntegerIds{ids.data()}, held, IntegerIds{keys.data()}, wanted);
}

}  // namespace

LG_FUZZ_TARGET(id_index) {
  if (choose.one_in(3)) return check_integers(choose);
  choose.flag() ? check_texts<int32_t>(choose) : check_texts<int64_t>(choose);
}

}  // namespace lg::fuzz
