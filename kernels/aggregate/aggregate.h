// aggregate.h: what the kernels share that make one row of those of a destination's in-neighbours.
#pragma once

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

#include "dropout/floats.h"

namespace lg {

// bfloat16's sums are float32's.
enum class RowFormat { kFloat32 = 0, kFloat64 = 1, kBFloat16 = 2 };

struct AggregateRequest {
  const int32_t* indptr;  // [num_dst + 1]: destination d's sources are indices[indptr[d] ...]
  int64_t num_dst;
  const int32_t* indices;
  int64_t num_edges;
  int64_t num_src;
  int64_t width;
  RowFormat format;
  int num_threads;
};

// Throws GraphFormatError for a block that is none, or a source that is outside of [0, num_src).
void check_block(const AggregateRequest& request);

template <class T>
struct Accumulator {
  using type = float;
};
template <>
struct Accumulator<double> {
  using type = double;
};
template <class T>
using Wide = typename Accumulator<T>::type;

// Fewer numbers a thread, and starting it takes what it saves.
constexpr int64_t kThreadNumbers = int64_t(1) << 19;

// Calls work(begin, end) on slices of [0, size), each in a thread, where there is work for more than one.
template <class Work>
void in_threads(int64_t size, int64_t num_numbers, int num_threads, const Work& work) {
  const int64_t most = std::min<int64_t>(std::max(num_threads, 1), std::max<int64_t>(size, 1));
  const int64_t slices = std::clamp<int64_t>(num_numbers / kThreadNumbers, 1, most);
  std::vector<std::thread> others;
  int64_t begin = 0;
  try {
    others.reserve(size_t(slices) - 1);
    for (int64_t slice = 1; slice < slices; ++slice) {
      const int64_t end = size * slice / slices;
      others.emplace_back(work, begin, end);
      begin = end;
    }
  } catch (const std::system_error&) {  // no more threads are to be had: the rest is for this one
  }
  work(begin, size);
  for (std::thread& other : others) other.join();
}

}  // namespace lg
