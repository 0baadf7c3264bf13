#include "graph/build_runs.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "common/error.h"
#include "common/huge_array.h"
#include "common/signals.h"
#include "gather_rows/line.h"

namespace lg {
namespace {

constexpr int64_t kBlock = 1024;
constexpr int64_t kFew = 16;       // keys that insertion may move anywhere
constexpr int64_t kMostMoves = 8;  // of a key by insertion, on average of more
constexpr int kMostBits = 12;      // buckets, whose ends stay in the first-level cache
constexpr int kDigitBits = 11;     // of codes, likewise

struct Wide {
  uint64_t halves[2];
};

// Blocks without a branch inside vectorise; a bad one is then searched for its first bad id.
template <class Id>
void check_block(const char* name, const char* end, const Id* ids, int64_t num_nodes, int64_t from,
                 int64_t to) {
  using Bits = std::make_unsigned_t<Id>;
  const Bits last = Bits(std::min<int64_t>(num_nodes - 1, std::numeric_limits<Id>::max()));
  Bits outside = 0;  // the upper bit: of a negative id, or of its distance from the last
  for (int64_t e = from; e < to; ++e) outside |= Bits(ids[e]) | (last - Bits(ids[e]));
  if (Id(outside) >= 0) return;
  for (int64_t e = from; e < to; ++e) {
    if (in_range(ids[e], num_nodes)) continue;
    fail<GraphFormatError>(name, ": edge ", e, " has the ", end, " ", ids[e], ", but there are ",
                           num_nodes, " such nodes: ids must lie in [0, ", num_nodes,
                           "). Raise the number of nodes, or remove the edge.");
  }
}

// Gathers what goes to one part until a line of memory is full, which is then written at once, past
// the caches. Written value by value, a line would be read first, and more lines would be open than
// the caches and their tables of pages hold.
template <class T>
class Lines {
 public:
  // `begin`: where each part begins; what lies before is not ours. It outlives this.
  Lines(void* out, const std::vector<int64_t>& begin)
      : out_(static_cast<T*>(out)), begin_(begin), staged_(begin.size() * kPerLine) {}

  // Places of a part ascend one by one.
  void put(int64_t part, int64_t place, T value) {
    const int64_t lane = lane_of(place);
    T* line = &staged_[part * kPerLine];
    line[lane] = value;
    if (lane < kPerLine - 1) return;
    if (place - lane >= begin_[part]) {
      BaselineLine::stream(reinterpret_cast<uint8_t*>(&out_[place - lane]),
                           reinterpret_cast<const uint8_t*>(line));
    } else {
      write_piece(part, place + 1);
    }
  }

  // Writes what is left in lines that are not full; `end`: where each part ends so far.
  void finish(const int64_t* end) {
    for (int64_t part = 0; part < int64_t(begin_.size()); ++part) {
      if (end[part] > begin_[part] && lane_of(end[part]) > 0) write_piece(part, end[part]);
    }
    BaselineLine::flush();
  }

 private:
  static constexpr int64_t kPerLine = kLineBytes / int64_t(sizeof(T));

  // By where the place is in memory.
  int64_t lane_of(int64_t place) const {
    return int64_t(reinterpret_cast<uintptr_t>(out_ + place) / sizeof(T)) & (kPerLine - 1);
  }

  // Of a line that ends at `end`, or is full there, the places that are ours.
  __attribute__((noinline)) void write_piece(int64_t part, int64_t end) {
    const int64_t first = end - 1 - lane_of(end - 1), from = std::max(first, begin_[part]);
    std::copy_n(&staged_[part * kPerLine + (from - first)], end - from, out_ + from);
  }

  T* out_;
  const std::vector<int64_t>& begin_;
  std::vector<T> staged_;
};

// Some edges of a list: to which part each belongs, and which place it gets.
struct Block {
  int64_t first, size;
  std::array<int64_t, kBlock> place;
  std::array<uint32_t, kBlock> run;
  std::array<uint16_t, kBlock> part;
};

// Brings the values of a column to their places.
class Mover {
 public:
  virtual ~Mover() = default;
  virtual void put(const Block& block) = 0;
  virtual void finish(const int64_t* end) = 0;
};

template <class T>
class MoverOf final : public Mover {
 public:
  MoverOf(const Column& column, const std::vector<int64_t>& begin)
      : given_(static_cast<const T*>(column.given)), lines_(column.sorted, begin) {}

  void put(const Block& block) override {
    for (int64_t i = 0; i < block.size; ++i) {
      lines_.put(block.part[i], block.place[i], given_[block.first + i]);
    }
  }
  void finish(const int64_t* end) override { lines_.finish(end); }

 private:
  const T* given_;
  Lines<T> lines_;
};

// Calls what is given with a value of so many bytes, whose type it needs.
template <class Call>
void with_width(int64_t bytes, const Call& call) {
  switch (bytes) {
    case 1:
      return call(uint8_t());
    case 2:
      return call(uint16_t());
    case 4:
      return call(uint32_t());
    case 8:
      return call(uint64_t());
    default:
      return call(Wide());
  }
}

// Returns whether it is done: with more than some moves a key it stops on the way.
bool sort_by_insertion(uint64_t* keys, int64_t count, int64_t most_moves) {
  int64_t left = kFew * most_moves;
  for (int64_t i = 1; i < count; ++i) {
    const uint64_t key = keys[i];
    left += most_moves;
    if (keys[i - 1] <= key) continue;
    int64_t at = i;
    for (; at > 0 && keys[at - 1] > key; --at) keys[at] = keys[at - 1];
    keys[at] = key;
    left -= i - at;
    if (left < 0) return false;
  }
  return true;
}

// Sorts keys that are all different, by about as many buckets as keys at a time: codes of a run
// mostly lie evenly, and comparisons of random keys are guessed wrong half the time.
// Each bucket has fewer bits left to differ in, so this ends whatever the codes are.
void sort_keys(uint64_t* keys, int64_t count, uint64_t* spare) {
  if (sort_by_insertion(keys, count, kMostMoves)) return;
  const auto [least, greatest] = std::minmax_element(keys, keys + count);
  const uint64_t low = *least, range = *greatest - low;
  const int range_bits = 64 - __builtin_clzll(range);
  const int bits = std::min({range_bits, kMostBits, 64 - __builtin_clzll(uint64_t(count))});
  const auto bucket = [&](uint64_t key) { return (key - low) >> (range_bits - bits); };

  std::array<uint32_t, (1 << kMostBits) + 1> end;  // where a bucket begins, then where it ends
  std::fill_n(end.begin(), (1 << bits) + 1, 0);
  for (int64_t i = 0; i < count; ++i) ++end[bucket(keys[i]) + 1];
  for (int b = 0; b < 1 << bits; ++b) end[b + 1] += end[b];
  for (int64_t i = 0; i < count; ++i) spare[end[bucket(keys[i])]++] = keys[i];
  std::copy_n(spare, count, keys);
  int64_t begin = 0;
  for (int b = 0; b < 1 << bits; begin = end[b++]) {
    if (end[b] - begin > kFew) sort_keys(keys + begin, end[b] - begin, spare);
  }
  sort_by_insertion(keys, count, kFew);  // what is left lies within few places of where it belongs
}

// Edges [begin, end) of the arrays, which are those of runs [first_run, end_run).
struct Part {
  int64_t first_run, end_run, begin, end;
};

// Brings the edges of a part into the order of their runs, and those of a run into that of their
// times: as keys (code, place in the part), or places alone without times.
template <class Ptr>
class PartSorter {
 public:
  PartSorter(const uint32_t* run, const uint32_t* edge_time, Ptr* run_ptr, int64_t most_edges)
      : run_(run),
        edge_time_(edge_time),
        run_ptr_(run_ptr),
        keys_(size_t(most_edges)),
        spare_(size_t(most_edges)),
        spare_run_(size_t(most_edges)) {}

  const uint64_t* sort(const Part& part) {
    const uint32_t* run = run_ + part.begin;
    const int64_t size = part.end - part.begin;
    count_runs(part);
    if (edge_time_ == nullptr) {
      group(part, run, [](int64_t i) { return uint64_t(i); });
      return keys_.data();
    }
    const uint32_t* code = edge_time_ + part.begin;
    if (order_by_code(code, run, size)) {
      group(part, spare_run_.data(), [&](int64_t i) { return spare_[i]; });
    } else {
      group(part, run, [=](int64_t i) { return uint64_t(code[i]) << 32 | uint64_t(i); });
    }
    int64_t from = part.begin;
    for (int64_t r = part.first_run; r < part.end_run; ++r) {
      const int64_t to = int64_t(run_ptr_[r + 1]);
      signals_.after(to - from);
      if (to - from > 1) sort_keys(&keys_[from - part.begin], to - from, spare_.data());
      from = to;
    }
    return keys_.data();
  }

 private:
  // run_ptr[r + 1] is in turn the number of edges of run r, where its next edge goes, where it ends.
  void count_runs(const Part& part) {
    Ptr* next = run_ptr_ + 1 + part.first_run;
    for (int64_t e = part.begin; e < part.end; ++e) ++next[run_[e] - uint32_t(part.first_run)];
    Ptr at = Ptr(part.begin);
    for (int64_t r = 0; r < part.end_run - part.first_run; ++r) at += std::exchange(next[r], at);
  }

  template <class Key>
  void group(const Part& part, const uint32_t* run, const Key& key) {
    Ptr* next = run_ptr_ + 1 + part.first_run;
    for (int64_t i = 0; i < part.end - part.begin; ++i) {
      keys_[size_t(next[run[i] - uint32_t(part.first_run)]++ - Ptr(part.begin))] = key(i);
    }
  }

  // Orders keys by the upper bits of their codes, so that runs are nearly sorted before they are
  // grouped: few keys of a run share these bits. Returns false, and does nothing, if codes ascend
  // as they are.
  bool order_by_code(const uint32_t* code, const uint32_t* run, int64_t size) {
    uint32_t least = UINT32_MAX, greatest = 0;
    int64_t falls = 0;
    for (int64_t i = 0; i < size; ++i) {
      least = std::min(least, code[i]);
      greatest = std::max(greatest, code[i]);
    }
    for (int64_t i = 1; i < size; ++i) falls += code[i] < code[i - 1];
    if (falls <= size / kBlock) return false;
    const int shift = std::max(32 - __builtin_clz(greatest - least) - kDigitBits, 0);
    std::fill(end_.begin(), end_.end(), 0);
    for (int64_t i = 0; i < size; ++i) ++end_[((code[i] - least) >> shift) + 1];
    for (size_t d = 1; d < end_.size(); ++d) end_[d] += end_[d - 1];
    for (int64_t i = 0; i < size; ++i) {
      const uint32_t to = end_[(code[i] - least) >> shift]++;
      spare_[to] = uint64_t(code[i]) << 32 | uint64_t(i);
      spare_run_[to] = run[i];
    }
    return true;
  }

  const uint32_t* run_;
  const uint32_t* edge_time_;
  Ptr* run_ptr_;
  HugeArray<uint64_t> keys_, spare_;
  HugeArray<uint32_t> spare_run_;
  SignalWatch signals_;
  std::array<uint32_t, (1 << kDigitBits) + 1> end_;  // of those with each digit
};

}  // namespace

template <class Id>
void count_cells(const char* name, const EdgeList<Id>& edges, int shift, int64_t* num_in_cell) {
  SignalWatch signals;
  for (int64_t from = 0; from < edges.num_edges; from += kBlock) {
    signals.after(kBlock);
    const int64_t to = std::min(from + kBlock, edges.num_edges);
    check_block(name, "source", edges.src, edges.num_src, from, to);
    check_block(name, "target", edges.dst, edges.num_dst, from, to);
    for (int64_t e = from; e < to; ++e) ++num_in_cell[edges.run(e) >> shift];
  }
}

template <class Id, class Index>
void divide_edges(const EdgeList<Id>& edges, int64_t first_src, const uint32_t* code,
                  const Parts& parts, uint32_t* run, Index* indices, uint32_t* edge_time,
                  const std::vector<Column>& columns) {
  const std::vector<int64_t> begin(parts.next, parts.next + parts.count);
  Lines<uint32_t> runs(run, begin), times(edge_time, begin);
  Lines<Index> sources(indices, begin);
  std::vector<std::unique_ptr<Mover>> movers;
  for (const Column& column : columns) {
    with_width(column.bytes, [&](auto like) {
      movers.push_back(std::make_unique<MoverOf<decltype(like)>>(column, begin));
    });
  }

  // In registers: what is written to memory might be the original.
  const Id *src = edges.src, *dst = edges.dst;
  const int64_t first_run = edges.first_run, step = edges.step;
  const uint16_t* of_cell = parts.of_cell;
  const int shift = parts.shift;
  int64_t* next = parts.next;
  Block block;
  SignalWatch signals;
  for (block.first = 0; block.first < edges.num_edges; block.first += kBlock) {
    signals.after(kBlock);
    block.size = std::min(kBlock, edges.num_edges - block.first);
    // By itself: a branch on a place that is not yet known, when guessed wrong, is known to be so late.
    for (int64_t i = 0; i < block.size; ++i) {
      const int64_t r = first_run + int64_t(dst[block.first + i]) * step;
      const uint16_t part = of_cell[r >> shift];
      block.run[i] = uint32_t(r);
      block.part[i] = part;
      block.place[i] = next[part]++;
    }
    for (int64_t i = 0; i < block.size; ++i) {
      const int64_t e = block.first + i, part = block.part[i], place = block.place[i];
      runs.put(part, place, block.run[i]);
      sources.put(part, place, Index(first_src + int64_t(src[e])));
      if (edge_time) times.put(part, place, code ? code[e] : 0);
    }
    for (const auto& mover : movers) mover->put(block);
  }
  runs.finish(parts.next);
  sources.finish(parts.next);
  if (edge_time) times.finish(parts.next);
  for (const auto& mover : movers) mover->finish(parts.next);
}

template <class Ptr>
void sort_parts(const int64_t* first_run, const int64_t* begin, int64_t num_parts,
                const uint32_t* run, uint32_t* edge_time, const std::vector<Column>& columns,
                Ptr* run_ptr) {
  int64_t most = 0;
  for (int64_t p = 0; p < num_parts; ++p) most = std::max(most, begin[p + 1] - begin[p]);
  int64_t widest = 0;
  for (const Column& column : columns) widest = std::max(widest, column.bytes);
  PartSorter<Ptr> sorter(run, edge_time, run_ptr, most);
  HugeArray<uint8_t> unsorted(size_t(most * widest));
  const uint64_t place_bits = edge_time ? UINT32_MAX : UINT64_MAX;
  SignalWatch signals;
  for (int64_t p = 0; p < num_parts; ++p) {
    const int64_t size = begin[p + 1] - begin[p];
    signals.after(size);
    const uint64_t* keys = sorter.sort({first_run[p], first_run[p + 1], begin[p], begin[p + 1]});
    if (edge_time) {
      for (int64_t i = 0; i < size; ++i) edge_time[begin[p] + i] = uint32_t(keys[i] >> 32);
    }
    for (const Column& column : columns) {
      with_width(column.bytes, [&](auto like) {
        using T = decltype(like);
        T* values = static_cast<T*>(column.sorted) + begin[p];
        T* from = reinterpret_cast<T*>(unsorted.data());
        std::copy_n(values, size, from);
        for (int64_t i = 0; i < size; ++i) values[i] = from[keys[i] & place_bits];
      });
    }
  }
}

template void count_cells(const char*, const EdgeList<int32_t>&, int, int64_t*);
template void count_cells(const char*, const EdgeList<int64_t>&, int, int64_t*);

#define LG_DIVIDE(Id, Index)                                                              \
  template void divide_edges(const EdgeList<Id>&, int64_t, const uint32_t*, const Parts&, \
                             uint32_t*, Index*, uint32_t*, const std::vector<Column>&)
LG_DIVIDE(int32_t, int32_t);
LG_DIVIDE(int32_t, int64_t);
LG_DIVIDE(int64_t, int32_t);
LG_DIVIDE(int64_t, int64_t);

template void sort_parts(const int64_t*, const int64_t*, int64_t, const uint32_t*, uint32_t*,
                         const std::vector<Column>&, uint32_t*);
template void sort_parts(const int64_t*, const int64_t*, int64_t, const uint32_t*, uint32_t*,
                         const std::vector<Column>&, int64_t*);

}  // namespace lg
