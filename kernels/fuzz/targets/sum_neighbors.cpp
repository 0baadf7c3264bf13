// Sums and means of neighbours are what plain loops say, and so are their gradients; a bad block or a bad source, and
// nothing is written.
#include "aggregate/sum_neighbors.h"

#include "fuzz/graphs.h"
#include "fuzz/target.h"

namespace lg::fuzz {

LG_FUZZ_TARGET(sum_neighbors) {
  constexpr float kUntouched = 42;
  const int64_t num_src = choose.size(30), num_dst = choose.size(30), width = choose.size(200);
  const bool is_mean = choose.flag(), is_backward = choose.flag();
  Exact<int32_t> indptr(num_dst + 1);
  indptr[0] = 0;
  for (int64_t d = 0; d < num_dst; ++d)
    indptr[d + 1] = indptr[d] + (num_src ? int32_t(1) << choose.size(3) >> choose.size(3) : 0);
  const int64_t num_edges = indptr[num_dst];
  Exact<int32_t> indices(num_edges);
  for (int64_t e = 0; e < num_edges; ++e) indices[e] = int32_t(choose.below(num_src));
  // Small integers and shares of powers of two: sums are exact, in any order.
  const int64_t num_in = is_backward ? num_dst : num_src, num_out = num_src + num_dst - num_in;
  Exact<float> in(num_in * width), out(num_out * width, kUntouched);
  for (int64_t i = 0; i < in.size(); ++i) in[i] = float(choose.below(9)) - 4;
  std::vector<float> expected(size_t(out.size()), 0);
  for (int64_t d = 0; d < num_dst; ++d) {
    const float share = is_mean ? 1.0f / float(std::max(indptr[d + 1] - indptr[d], 1)) : 1;
    for (int64_t e = indptr[d]; e < indptr[d + 1]; ++e) {
      const int64_t from = is_backward ? d : indices[e], to = is_backward ? indices[e] : d;
      for (int64_t c = 0; c < width; ++c)
        expected[size_t(to * width + c)] += share * in[from * width + c];
    }
  }
  bool sound = true;
  if (num_edges && choose.one_in(8)) {
    indices[choose.below(num_edges)] = bad_id<int32_t>(choose, num_src);
    sound = false;
  } else if (num_dst && choose.one_in(8)) {
    indptr[choose.below(num_dst) + 1] = choose.flag() ? -1 : int32_t(num_edges + 1);
    sound = false;
  }
  const AggregateRequest request{
      indptr.data(), num_dst, indices.data(),      num_edges,
      num_src,       width,   RowFormat::kFloat32, int(choose.between(0, 3))};
  const auto kernel = is_backward ? sum_destinations : sum_neighbors;
  const Outcome outcome = outcome_of([&] { kernel(request, is_mean, in.data(), out.data()); });
  expect(outcome == (sound ? Outcome::kDone : Outcome::kGraphFormatError), outcome);
  for (int64_t i = 0; i < out.size(); ++i)
    expect(out[i] == (sound ? expected[size_t(i)] : kUntouched), "number ", i);
}

}  // namespace lg::fuzz
