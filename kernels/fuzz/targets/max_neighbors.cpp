// The largest of neighbours is what plain loops say, and its gradient goes to whom it belongs; a bad block or a bad
// source, and nothing is written.
#include "aggregate/max_neighbors.h"

#include <cmath>

#include "fuzz/graphs.h"
#include "fuzz/target.h"

namespace lg::fuzz {

LG_FUZZ_TARGET(max_neighbors) {
  constexpr float kUntouched = 42;
  const int64_t num_src = choose.size(30), num_dst = choose.size(30), width = choose.size(200);
  Exact<int32_t> indptr(num_dst + 1);
  indptr[0] = 0;
  for (int64_t d = 0; d < num_dst; ++d) {
    indptr[d + 1] = indptr[d] + (num_src ? int32_t(choose.size(6)) : 0);
  }
  const int64_t num_edges = indptr[num_dst];
  Exact<int32_t> indices(num_edges);
  for (int64_t e = 0; e < num_edges; ++e) indices[e] = int32_t(choose.below(num_src));
  Exact<float> x(num_src * width);
  for (int64_t i = 0; i < x.size(); ++i) {
    x[i] = choose.one_in(20) ? NAN : choose.one_in(20) ? INFINITY : float(choose.below(5)) - 2;
  }
  bool sound = true;
  if (num_edges && choose.one_in(8)) {
    indices[choose.below(num_edges)] = bad_id<int32_t>(choose, num_src);
    sound = false;
  } else if (num_dst && choose.one_in(8)) {
    indptr[choose.below(num_dst) + 1] = choose.flag() ? -1 : int32_t(num_edges + 1);
    sound = false;
  }
  Exact<float> out(num_dst * width, kUntouched);
  Exact<int32_t> from(num_dst * width, -7);
  const AggregateRequest request{
      indptr.data(), num_dst, indices.data(),      num_edges,
      num_src,       width,   RowFormat::kFloat32, int(choose.between(0, 3))};
  const Outcome outcome =
      outcome_of([&] { max_neighbors(request, x.data(), out.data(), from.data()); });
  expect(outcome == (sound ? Outcome::kDone : Outcome::kGraphFormatError), outcome);
  if (!sound) {
    for (int64_t i = 0; i < out.size(); ++i)
      expect(out[i] == kUntouched && from[i] == -7, "written: ", i);
    return;
  }
  for (int64_t d = 0; d < num_dst; ++d) {
    for (int64_t c = 0; c < width; ++c) {
      float best = 0;
      int32_t whose = -1;
      for (int64_t e = indptr[d]; e < indptr[d + 1]; ++e) {
        const float value = x[indices[e] * width + c];
        if (whose == -1 || value > best || (std::isnan(value) && !std::isnan(best))) {
          best = value;
          whose = indices[e];
        }
      }
      const float found = out[d * width + c];
      expect(from[d * width + c] == whose, "source of ", d, ", ", c);
      expect(found == best || (std::isnan(found) && std::isnan(best)), "row ", d, ", column ", c);
    }
  }

  Exact<float> grad(num_dst * width), into(num_src * width);
  for (int64_t i = 0; i < grad.size(); ++i) grad[i] = float(choose.below(9)) - 4;
  for (int64_t i = 0; i < into.size(); ++i) into[i] = 0;
  std::vector<float> wanted(size_t(into.size()), 0);
  const bool broken = from.size() && choose.one_in(8);
  if (broken) from[choose.below(from.size())] = choose.flag() ? -2 : int32_t(num_src);
  for (int64_t i = 0; i < grad.size() && !broken; ++i) {
    if (from[i] >= 0) wanted[size_t(from[i] * width + i % width)] += grad[i];
  }
  const Outcome after = outcome_of([&] {
    add_to_sources(from.data(), grad.data(), into.data(), num_dst, num_src, width,
                   RowFormat::kFloat32, int(choose.between(0, 3)));
  });
  expect(after == (broken ? Outcome::kGraphFormatError : Outcome::kDone), after);
  for (int64_t i = 0; i < into.size(); ++i) expect(into[i] == wanted[size_t(i)], "gradient ", i);
}

}  // namespace lg::fuzz
