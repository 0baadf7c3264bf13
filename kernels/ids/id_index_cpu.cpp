#include "ids/id_index.h"

#include <algorithm>
#include <array>

#include "common/fetch.h"
#include "common/signals.h"

namespace lg {
namespace {

constexpr int64_t kBlock = 64;  // keys whose slots and ids are fetched at once

uint64_t fold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = (unsigned __int128)(a)*b;
  return uint64_t(product) ^ uint64_t(product >> 64);
}

template <class Word>
uint64_t read(const uint8_t* from) {
  Word word;
  std::memcpy(&word, from, sizeof(Word));
  return word;
}

uint64_t hash(const IntegerIds& ids, int64_t i, const HashKey& key) {
  return fold(fold(uint64_t(ids.values[i]) ^ key.words[0], key.words[1]), key.words[2]);
}

// Source: wyhash's multiplication and fold, 16 bytes at a time.
template <class Offset>
uint64_t hash(const TextIds<Offset>& ids, int64_t i, const HashKey& key) {
  const uint8_t* from = ids.begin(i);
  const int64_t size = ids.size(i);
  const auto& [k0, k1, k2, k3] = key.words;
  uint64_t state = k0 ^ uint64_t(size);
  int64_t left = size;
  for (; left > 16; left -= 16, from += 16) {
    state = fold(read<uint64_t>(from) ^ k1, read<uint64_t>(from + 8) ^ state);
  }
  uint64_t low = 0, high = 0;  // of 4 bytes and more, two words that may overlap
  if (left >= 8) {
    low = read<uint64_t>(from), high = read<uint64_t>(from + left - 8);
  } else if (left >= 4) {
    low = read<uint32_t>(from), high = read<uint32_t>(from + left - 4);
  } else if (left > 0) {
    low = uint64_t(from[0]) << 16 | uint64_t(from[left >> 1]) << 8 | from[left - 1];
  }
  return fold(fold(low ^ k1, high ^ state) ^ k2, k3 ^ uint64_t(size));
}

bool equal(const IntegerIds& ids, int64_t row, const IntegerIds& keys, int64_t i) {
  return ids.values[row] == keys.values[i];
}

template <class Offset, class KeyOffset>
bool equal(const TextIds<Offset>& ids, int64_t row, const TextIds<KeyOffset>& keys, int64_t i) {
  const int64_t size = ids.size(row);
  return size == keys.size(i) && std::memcmp(ids.begin(row), keys.begin(i), size_t(size)) == 0;
}

void fetch_place(const IntegerIds& ids, int64_t row) { fetch_line(&ids.values[row]); }
template <class Offset>
void fetch_place(const TextIds<Offset>& ids, int64_t row) {
  fetch_line(&ids.offsets[row]);
}

void fetch_id(const IntegerIds&, int64_t) {}
template <class Offset>
void fetch_id(const TextIds<Offset>& ids, int64_t row) {
  fetch_line(ids.begin(row));
}

}  // namespace

template <class Ids>
IdIndex<Ids>::IdIndex(const Ids& ids, int64_t count, uint64_t key)
    : ids_(ids),
      count_(count),
      num_slots_(count + count / 2 + 1),
      key_(key),
      slots_(size_t(num_slots_)) {}

template <class Ids>
int32_t IdIndex<Ids>::candidate(Place& at) const {
  for (;; at.slot = next(at.slot)) {
    const uint64_t slot = slots_[size_t(at.slot)];
    if (slot == 0) return kUnknown;
    if (uint32_t(slot >> 32) == at.tag) return int32_t(uint32_t(slot) - 1);
  }
}

template <class Ids>
template <class Keys>
int32_t IdIndex<Ids>::confirmed(const Keys& keys, int64_t i, int32_t row, Place& at) const {
  while (row >= 0 && !equal(ids_, row, keys, i)) {
    at.slot = next(at.slot);
    row = candidate(at);
  }
  return row;
}

template <class Ids>
void IdIndex<Ids>::add(int64_t end) {
  ids_.check(added_, end);
  std::array<Place, kBlock> places;
  for (int64_t first = added_; first < end; first += kBlock) {
    const int64_t size = std::min(kBlock, end - first);
    for (int64_t i = 0; i < size; ++i) {
      places[i] = place(hash(ids_, first + i, key_));
      fetch_line(&slots_[size_t(places[i].slot)]);
    }
    for (int64_t i = 0; i < size; ++i) {
      Place at = places[i];
      const int64_t row = first + i;
      const int32_t same = confirmed(ids_, row, candidate(at), at);
      if (same >= 0) {
        repeats_.push_back({int32_t(row), same});
      } else {
        slots_[size_t(at.slot)] = uint64_t(at.tag) << 32 | uint64_t(row + 1);
      }
    }
  }
  added_ = end;
}

template <class Ids>
template <class Keys>
typename IdIndex<Ids>::Found IdIndex<Ids>::find(const Keys& keys, const uint8_t* is_null,
                                                int64_t count, int32_t* rows) const {
  keys.check(0, count);
  Found found{0, 0};
  SignalWatch signals;
  std::array<Place, kBlock> places;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t size = std::min(kBlock, count - first);
    int32_t* row = rows + first;
    for (int64_t i = 0; i < size; ++i) {
      places[i] = place(hash(keys, first + i, key_));
      fetch_line(&slots_[size_t(places[i].slot)]);
    }
    for (int64_t i = 0; i < size; ++i) {
      row[i] = candidate(places[i]);
      if (row[i] >= 0) fetch_place(ids_, row[i]);
    }
    signals.after(size);
    for (int64_t i = 0; i < size; ++i) {
      if (row[i] >= 0) fetch_id(ids_, row[i]);
    }
    for (int64_t i = 0; i < size; ++i) {
      if (is_null != nullptr && is_null[first + i]) {
        row[i] = kNull;
        ++found.num_null;
        continue;
      }
      row[i] = confirmed(keys, first + i, row[i], places[i]);
      found.num_unknown += row[i] < 0;
    }
  }
  return found;
}

template class IdIndex<IntegerIds>;
template class IdIndex<TextIds<int64_t>>;
template IdIndex<IntegerIds>::Found IdIndex<IntegerIds>::find(const IntegerIds&, const uint8_t*,
                                                              int64_t, int32_t*) const;
template IdIndex<TextIds<int64_t>>::Found IdIndex<TextIds<int64_t>>::find(const TextIds<int32_t>&,
                                                                          const uint8_t*, int64_t,
                                                                          int32_t*) const;
template IdIndex<TextIds<int64_t>>::Found IdIndex<TextIds<int64_t>>::find(const TextIds<int64_t>&,
                                                                          const uint8_t*, int64_t,
                                                                          int32_t*) const;

}  // namespace lg
