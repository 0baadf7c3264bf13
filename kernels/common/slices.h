// slices.h: work on a range, cut into slices that threads do at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace lg {

// Calls work(begin, end) on slices of [0, size), each in a thread. There are as many as num_threads,
// or fewer, so that each has `least` of the `total` numbers to compute: with less, starting a thread
// takes too large a part of what it saves.
template <class Work>
void in_threads(int64_t size, int64_t total, int64_t least, int num_threads, const Work& work) {
  const int64_t most = std::min<int64_t>(std::max(num_threads, 1), std::max<int64_t>(size, 1));
  const int64_t slices = std::clamp<int64_t>(total / least, 1, most);
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
