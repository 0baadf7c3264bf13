// id_index.h: finds the rows of ids, which are integers or bytes, in an array of them that is in
// memory or mapped.
//
//   IdIndex(ids, count, key)   of ids[count], none of which is in it yet
//   add(end)                   takes in the rows up to `end`, of those that repeat an id the first
//   find(keys, ...)            the row of each key; threads may call it at once
//
// An open-addressing table of 8 bytes a slot: 32 bits of a hash, and a row. Rows whose bits are equal
// are confirmed by a comparison of all bytes, so that no key ever finds another's row, and the hash
// decides about nothing but time. It is keyed, lest somebody's ids all fall into one place.
//
// Memory: 12 bytes an id. Each key costs three reads at random, which are fetched for a block of keys
// at once: a slot, where the id lies, and the id.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common/error.h"
#include "common/huge_array.h"

namespace lg {

// Ids that are bytes: id i is bytes[offsets[i]] to bytes[offsets[i + 1] - 1].
template <class Offset>
struct TextIds {
  const Offset* offsets;  // [count + 1]
  const uint8_t* bytes;   // [num_bytes]
  int64_t num_bytes;

  const uint8_t* begin(int64_t i) const { return bytes + offsets[i]; }
  int64_t size(int64_t i) const { return int64_t(offsets[i + 1]) - int64_t(offsets[i]); }

  // Before any id of [begin, end) is read.
  void check(int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      if (offsets[i] >= 0 && offsets[i] <= offsets[i + 1] && offsets[i + 1] <= num_bytes) continue;
      fail<GraphFormatError>("id ", i, " lies from byte ", offsets[i], " to ", offsets[i + 1],
                             " of ", num_bytes,
                             ": offsets must ascend from 0 to the number of bytes.");
    }
  }
};

struct IntegerIds {
  const int64_t* values;

  void check(int64_t, int64_t) const {}
};

// Words that nobody knows who does not know the key.
struct HashKey {
  uint64_t words[4];

  explicit HashKey(uint64_t key) {
    for (uint64_t& word : words) {  // splitmix64
      uint64_t z = key += 0x9e3779b97f4a7c15;
      z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
      z = (z ^ z >> 27) * 0x94d049bb133111eb;
      word = z ^ z >> 31;
    }
  }
};

template <class Ids>
class IdIndex {
 public:
  static constexpr int64_t kMostIds = std::numeric_limits<int32_t>::max() - 1;
  static constexpr int32_t kUnknown = -1, kNull = -2;  // in place of a row

  struct Repeat {
    int32_t row, of;
  };
  struct Found {
    int64_t num_unknown, num_null;
  };

  // What `ids` points at must outlive this.
  IdIndex(const Ids& ids, int64_t count, uint64_t key);

  // GraphFormatError: an id that lies outside the bytes.
  void add(int64_t end);

  // is_null[count] or nullptr. GraphFormatError as above.
  template <class Keys>
  Found find(const Keys& keys, const uint8_t* is_null, int64_t count, int32_t* rows) const;

  int64_t count() const { return count_; }
  int64_t added() const { return added_; }
  const std::vector<Repeat>& repeats() const { return repeats_; }

 private:
  struct Place {
    int64_t slot;
    uint32_t tag;
  };

  Place place(uint64_t hash) const {
    return {int64_t((unsigned __int128)(hash)*uint64_t(num_slots_) >> 64), uint32_t(hash)};
  }
  int64_t next(int64_t slot) const { return slot + 1 == num_slots_ ? 0 : slot + 1; }
  // The row in the first slot from `at` on that has this tag, where `at` then is; kUnknown if an empty
  // one comes before.
  int32_t candidate(Place& at) const;
  // Likewise the row of key i, of which `row` at `at` is the first candidate.
  template <class Keys>
  int32_t confirmed(const Keys& keys, int64_t i, int32_t row, Place& at) const;

  const Ids ids_;
  const int64_t count_, num_slots_;
  const HashKey key_;
  int64_t added_ = 0;
  HugeArray<uint64_t> slots_;  // tag << 32 | row + 1; 0: empty
  std::vector<Repeat> repeats_;
};

}  // namespace lg
