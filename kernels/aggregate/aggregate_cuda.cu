// aggregate_cuda.cu: sum_neighbors.h and max_neighbors.h on a device: the same numbers, bit for bit.
//
// A thread makes its columns of a row alone, by additions in the order of the row's list, so nothing
// depends on the order of threads. Both directions are the same loop: over a block's destinations, and
// over its sources, whose lists are in the order of edges. A row of which an index is none is NaN.
#include "aggregate/row_tiles.h"
#include "common/cuda/kernel.h"

namespace lg {

//   in   input[lists.num_in, width]
//   in   factors[lists.num_entries]   what rows are multiplied by; null: 1
//   in   is_mean                      sums are divided by their number
//   out  out[lists.num_rows, width]   zeros where a list is empty
template <class T, class Vector, class Number>
__global__ void sum_rows(RowLists lists, TileShape shape, const Number* factors, int32_t is_mean,
                         const T* input, T* out) {
  constexpr int kCount = sizeof(Vector) / sizeof(T);
  using Some = Columns<T, kCount>;
  for_each_tile<kCount>(lists.num_rows, shape, [&](int64_t row, int64_t column) {
    const RowList list(lists, row);
    bool is_bad = list.is_bad;
    Number sums[kCount] = {};
    for (int64_t first = list.begin; first < list.end; first += kRowsAhead) {
      Some read[kRowsAhead];
      Number by[kRowsAhead];
      for (int k = 0; k < kRowsAhead; ++k) {
        read[k] = Some{};  // zeros, which change no sum
        by[k] = 1;
        if (first + k >= list.end) continue;
        const int64_t from = lists.row_of(first + k);
        is_bad |= from < 0;
        if (from < 0) continue;
        read[k] = Some::load(input + from * shape.width + column);
        if (factors != nullptr) by[k] = factors[first + k];
      }
      for (int k = 0; k < kRowsAhead; ++k) {
        for (int c = 0; c < kCount; ++c) sums[c] += widen(read[k].at[c]) * by[k];
      }
    }
    const int64_t count = list.end - list.begin;
    const Number share = is_mean != 0 && count > 0 ? Number(1) / Number(count) : Number(1);
    Some made;
    for (int c = 0; c < kCount; ++c) {
      narrow(is_bad ? not_a_number<Number>() : sums[c] * share, &made.at[c]);
    }
    made.store(out + row * shape.width + column);
  });
}

//   in   input[lists.num_in, width]
//   out  out[lists.num_rows, width]    0 where a list is empty
//   out  source[lists.num_rows, width]  the row; of equals the first of the list; -1 where there is none
template <class T, class Vector, class Number>
__global__ void max_rows(RowLists lists, TileShape shape, const T* input, T* out, int32_t* source) {
  constexpr int kCount = sizeof(Vector) / sizeof(T);
  using Some = Columns<T, kCount>;
  for_each_tile<kCount>(lists.num_rows, shape, [&](int64_t row, int64_t column) {
    const RowList list(lists, row);
    bool is_bad = list.is_bad;
    Number best[kCount] = {};
    Columns<int32_t, kCount> whose;
    for (int c = 0; c < kCount; ++c) whose.at[c] = -1;
    for (int64_t first = list.begin; first < list.end; first += kRowsAhead) {
      Some read[kRowsAhead];
      int64_t rows[kRowsAhead];
      for (int k = 0; k < kRowsAhead; ++k) {
        rows[k] = -1;
        if (first + k >= list.end) continue;
        rows[k] = lists.row_of(first + k);
        is_bad |= rows[k] < 0;
        if (rows[k] >= 0) {
          read[k] = Some::load(input + rows[k] * shape.width + column);
        }
      }
      for (int k = 0; k < kRowsAhead; ++k) {
        if (rows[k] < 0) continue;
        for (int c = 0; c < kCount; ++c) {
          const Number value = widen(read[k].at[c]), before = best[c];
          const bool is_nan = value != value && before == before;
          const bool is_larger = whose.at[c] < 0 || value > before || is_nan;
          best[c] = is_larger ? value : before;
          whose.at[c] = is_larger ? int32_t(rows[k]) : whose.at[c];
        }
      }
    }
    Some made;
    for (int c = 0; c < kCount; ++c) {
      narrow(is_bad ? not_a_number<Number>() : best[c], &made.at[c]);
      if (is_bad) whose.at[c] = -1;
    }
    whose.store(source + row * shape.width + column);
    made.store(out + row * shape.width + column);
  });
}

// The gradient of max_rows.
//   in   lists                          those of sources: their destinations, ascending
//   in   grad, source[lists.num_in, width]
//   out  out[lists.num_rows, width]     sums of what went to the destinations whose row this is
template <class T, class Vector, class Number>
__global__ void add_to_sources(RowLists lists, TileShape shape, const int32_t* source,
                               const T* grad, T* out) {
  constexpr int kCount = sizeof(Vector) / sizeof(T);
  using Some = Columns<T, kCount>;
  using Whose = Columns<int32_t, kCount>;
  for_each_tile<kCount>(lists.num_rows, shape, [&](int64_t row, int64_t column) {
    const RowList list(lists, row);
    Number sums[kCount] = {};
    int64_t before = -1;
    for (int64_t first = list.begin; first < list.end; first += kRowsAhead) {
      Some read[kRowsAhead];
      Whose whose[kRowsAhead];
      for (int k = 0; k < kRowsAhead; ++k) {
        read[k] = Some{};  // zeros, which change no sum
        whose[k] = Whose{};
        const int64_t dst = first + k < list.end ? lists.row_of(first + k) : int64_t(-1);
        // Of several edges to one destination, one alone.
        if (dst < 0 || dst == before) continue;
        before = dst;
        read[k] = Some::load(grad + dst * shape.width + column);
        whose[k] = Whose::load(source + dst * shape.width + column);
      }
      for (int k = 0; k < kRowsAhead; ++k) {
        for (int c = 0; c < kCount; ++c) {
          sums[c] += whose[k].at[c] == int32_t(row) ? widen(read[k].at[c]) : Number(0);
        }
      }
    }
    Some made;
    for (int c = 0; c < kCount; ++c) narrow(sums[c], &made.at[c]);
    made.store(out + row * shape.width + column);
  });
}

// The gradient of factors: the product of an entry's two rows.
//   in   left[lists.num_rows, width], right[lists.num_in, width]
//   out  out[lists.num_entries]
template <class T, class Vector, class Number>
__global__ void dot_rows(RowLists lists, TileShape shape, const T* left, const T* right,
                         Number* out) {
  constexpr int kCount = sizeof(Vector) / sizeof(T);
  using Some = Columns<T, kCount>;
  const uint32_t lane = threadIdx.x % shape.lanes;
  const uint32_t team = 0xffffffffu >> (32 - shape.lanes) << (threadIdx.x % 32 - lane);
  const int64_t step = int64_t(shape.lanes) * kCount;
  for (int64_t row = team_of_grid(shape); row < lists.num_rows; row += teams_of_grid(shape)) {
    const RowList list(lists, row);
    for (int64_t entry = list.begin; entry < list.end; ++entry) {
      const int64_t other = lists.row_of(entry);
      Number sum = other < 0 ? not_a_number<Number>() : Number(0);
      for (int64_t column = int64_t(lane) * kCount; other >= 0 && column < shape.width;
           column += step) {
        const Some a = Some::load(left + row * shape.width + column);
        const Some b = Some::load(right + other * shape.width + column);
        for (int c = 0; c < kCount; ++c) sum += widen(a.at[c]) * widen(b.at[c]);
      }
      for (uint32_t half = shape.lanes / 2; half > 0; half /= 2) {
        sum += __shfl_xor_sync(team, sum, int(half));
      }
      if (lane == 0) out[entry] = sum;
    }
  }
}

// The first place whose number is larger than `number`; numbers ascend.
template <class Number>
__device__ inline int64_t place_above(const int32_t* numbers, int64_t count, Number number) {
  int64_t low = 0;
  for (int64_t left = count; left > 0;) {
    const int64_t half = left / 2;
    const bool is_above = int64_t(numbers[low + half]) > int64_t(number);
    low = is_above ? low : low + half + 1;
    left = is_above ? half : left - half - 1;
  }
  return low;
}

// A block's lists, the other way round.
//   in   starts[num_dst + 1]      where the edges of destinations begin
//   in   sources[num_edges]       ascending
//   in   edges[num_edges]         whose they are; of one source, ascending
//   out  source_starts[num_src + 1]
//   out  destinations[num_edges] of the edges
__global__ void list_destinations(const int32_t* starts, int64_t num_dst, const int32_t* sources,
                                  const int64_t* edges, int64_t num_edges, int64_t num_src,
                                  int32_t* source_starts, int32_t* destinations) {
  for (int64_t i = thread_of_grid(); i <= num_src; i += threads_of_grid()) {
    source_starts[i] = int32_t(place_above(sources, num_edges, i - 1));
  }
  for (int64_t i = thread_of_grid(); i < num_edges; i += threads_of_grid()) {
    destinations[i] = int32_t(place_above(starts, num_dst + 1, edges[i]) - 1);
  }
}

// The share of each entry in its row's mean: 1 / the number of that row's entries.
//   in   lists                   those of sources
//   in   starts[lists.num_in + 1]
//   out  shares[lists.num_entries]
template <class Number>
__global__ void share_rows(RowLists lists, const int32_t* starts, Number* shares) {
  for (int64_t i = thread_of_grid(); i < lists.num_entries; i += threads_of_grid()) {
    const int64_t row = lists.row_of(i);
    const int32_t count = row < 0 ? 0 : starts[row + 1] - starts[row];
    shares[i] = Number(1) / Number(count > 0 ? count : 1);
  }
}

}  // namespace lg

LG_INSTANTIATE(sum_rows<float, uint4, float>)
LG_INSTANTIATE(sum_rows<float, uint2, float>)
LG_INSTANTIATE(sum_rows<float, uint32_t, float>)
LG_INSTANTIATE(sum_rows<double, uint4, double>)
LG_INSTANTIATE(sum_rows<double, uint2, double>)
LG_INSTANTIATE(sum_rows<lg::Float16, uint4, float>)
LG_INSTANTIATE(sum_rows<lg::Float16, uint32_t, float>)
LG_INSTANTIATE(sum_rows<lg::Float16, uint16_t, float>)
LG_INSTANTIATE(sum_rows<lg::BFloat16, uint4, float>)
LG_INSTANTIATE(sum_rows<lg::BFloat16, uint32_t, float>)
LG_INSTANTIATE(sum_rows<lg::BFloat16, uint16_t, float>)
LG_INSTANTIATE(max_rows<float, uint4, float>)
LG_INSTANTIATE(max_rows<float, uint2, float>)
LG_INSTANTIATE(max_rows<float, uint32_t, float>)
LG_INSTANTIATE(max_rows<double, uint4, double>)
LG_INSTANTIATE(max_rows<double, uint2, double>)
LG_INSTANTIATE(max_rows<lg::Float16, uint4, float>)
LG_INSTANTIATE(max_rows<lg::Float16, uint32_t, float>)
LG_INSTANTIATE(max_rows<lg::Float16, uint16_t, float>)
LG_INSTANTIATE(max_rows<lg::BFloat16, uint4, float>)
LG_INSTANTIATE(max_rows<lg::BFloat16, uint32_t, float>)
LG_INSTANTIATE(max_rows<lg::BFloat16, uint16_t, float>)
LG_INSTANTIATE(add_to_sources<float, uint4, float>)
LG_INSTANTIATE(add_to_sources<float, uint2, float>)
LG_INSTANTIATE(add_to_sources<float, uint32_t, float>)
LG_INSTANTIATE(add_to_sources<double, uint4, double>)
LG_INSTANTIATE(add_to_sources<double, uint2, double>)
LG_INSTANTIATE(add_to_sources<lg::Float16, uint4, float>)
LG_INSTANTIATE(add_to_sources<lg::Float16, uint32_t, float>)
LG_INSTANTIATE(add_to_sources<lg::Float16, uint16_t, float>)
LG_INSTANTIATE(add_to_sources<lg::BFloat16, uint4, float>)
LG_INSTANTIATE(add_to_sources<lg::BFloat16, uint32_t, float>)
LG_INSTANTIATE(add_to_sources<lg::BFloat16, uint16_t, float>)
LG_INSTANTIATE(dot_rows<float, uint4, float>)
LG_INSTANTIATE(dot_rows<float, uint2, float>)
LG_INSTANTIATE(dot_rows<float, uint32_t, float>)
LG_INSTANTIATE(dot_rows<double, uint4, double>)
LG_INSTANTIATE(dot_rows<double, uint2, double>)
LG_INSTANTIATE(dot_rows<lg::Float16, uint4, float>)
LG_INSTANTIATE(dot_rows<lg::Float16, uint32_t, float>)
LG_INSTANTIATE(dot_rows<lg::Float16, uint16_t, float>)
LG_INSTANTIATE(dot_rows<lg::BFloat16, uint4, float>)
LG_INSTANTIATE(dot_rows<lg::BFloat16, uint32_t, float>)
LG_INSTANTIATE(dot_rows<lg::BFloat16, uint16_t, float>)
LG_INSTANTIATE(list_destinations)
LG_INSTANTIATE(share_rows<float>)
LG_INSTANTIATE(share_rows<double>)
