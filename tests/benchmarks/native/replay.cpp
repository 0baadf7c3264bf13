// replay.cpp: the memory accesses of recorded mini-batches, and nothing else.
//
// A pass over each table that a batch read at random, as quick as the memory allows: every address is known beforehand, is asked for kAhead accesses early, and no access waits for another. A sampler has
// to decide what it reads next; how near it comes to these passes is its quality.
//
//   c++ -std=c++17 -O3 -march=native -shared -fPIC replay.cpp -o replay.so
#include <cstdint>

namespace {

constexpr int64_t kAhead = 64;  // more misses than a core keeps in flight
constexpr int kLocalBits = 22;  // of a stamp: the local id; the others number the batch
constexpr uint32_t kLocalMask = (1u << kLocalBits) - 1;

// Into the second-level cache, as the kernels do (kernels/common/fetch.h).
template <class T>
void prefetch(const T* table, const uint32_t* at, int64_t i, int64_t count) {
  if (i + kAhead < count)
    __builtin_prefetch(&table[at[i + kAhead]], /*for writing*/ 0, /*level*/ 2);
}

template <class T>
void read(const T* table, const uint32_t* at, int64_t count, T* out) {
  for (int64_t i = 0; i < count; ++i) {
    prefetch(table, at, i, count);
    out[i] = table[at[i]];
  }
}

}  // namespace

extern "C" {

// What lies at these positions of a table of 4 or 8 bytes an entry.
void replay_reads_4(const int32_t* table, const uint32_t* at, int64_t count, int32_t* out) {
  read(table, at, count, out);
}
void replay_reads_8(const int64_t* table, const uint32_t* at, int64_t count, int64_t* out) {
  read(table, at, count, out);
}

// Local ids in order of first occurrence, by a stamp a node. `batch` differs from call to call, so that
// nothing has to be cleared: 1 to 1023, and the caller zeroes the stamps when it starts again.
// Returns the number of distinct nodes, below 2^22; `list` and `locals` need room for one more.
int64_t replay_stamps(uint32_t* stamps, uint32_t batch, const uint32_t* nodes, int64_t count,
                      uint32_t* list, uint32_t* locals) {
  const uint32_t tag = batch << kLocalBits;
  uint32_t num_nodes = 0;
  for (int64_t i = 0; i < count; ++i) {
    prefetch(stamps, nodes, i, count);
    const uint32_t node = nodes[i], stamp = stamps[node];
    // Arithmetic and no branch: whether a node is new cannot be predicted.
    const uint32_t is_new = ((stamp ^ tag) & ~kLocalMask) != 0;
    const uint32_t mask = 0u - is_new;
    const uint32_t updated = (stamp & ~mask) | ((tag | num_nodes) & mask);
    stamps[node] = updated;
    list[num_nodes] = node;
    locals[i] = updated & kLocalMask;
    num_nodes += is_new;
  }
  return num_nodes;
}

}  // extern "C"
