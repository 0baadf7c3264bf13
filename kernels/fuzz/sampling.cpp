#include "fuzz/sampling.h"

#include <numeric>
#include <set>

namespace lg::fuzz {

Workspace random_workspace(Choices& choose, int64_t num_nodes) {
  const int64_t room = choose.one_in(20) ? choose.size(num_nodes) : num_nodes + choose.size(20);
  return Workspace(room, /*use_hash=*/choose.one_in(3));
}

Exact<int64_t> random_seeds(Choices& choose, int64_t num_nodes) {
  Exact<int64_t> seeds(choose.size(std::min<int64_t>(num_nodes, 300)));
  const int64_t first = num_nodes ? choose.below(num_nodes) : 0;
  int64_t stride = 1 + choose.size(7);
  while (num_nodes && std::gcd(stride, num_nodes) != 1) ++stride;  // so that all are distinct
  for (int64_t i = 0; i < seeds.size(); ++i) seeds[i] = (first + i * stride) % num_nodes;
  if (seeds.size() && choose.one_in(8)) {
    const int64_t repeated = seeds[choose.below(seeds.size())];
    seeds[choose.below(seeds.size())] =
        choose.flag() ? repeated : bad_id<int64_t>(choose, num_nodes);
  }
  return seeds;
}

BatchRequest random_batch_request(Choices& choose, const Exact<int64_t>& seeds) {
  BatchRequest request{};
  request.seeds = seeds.data();
  request.num_seeds = seeds.size();
  request.seed = choose.wide();
  request.epoch = choose.word();
  request.step = choose.word();
  request.hop = choose.one_in(3) ? uint32_t(choose.size(12)) : 0;
  request.max_local = choose.one_in(8) ? choose.size(300) : kMaxLocal;
  return request;
}

std::optional<Outcome> refusal(const Workspace& workspace, const BatchRequest& request,
                               int64_t num_nodes) {
  if (workspace.num_nodes < num_nodes ||
      std::min(request.num_seeds, num_nodes) > request.max_local) {
    return Outcome::kSamplerConfigError;
  }
  std::set<int64_t> seen;
  const bool sound = std::all_of(
      request.seeds, request.seeds + request.num_seeds,
      [&](int64_t seed) { return in_range(seed, num_nodes) && seen.insert(seed).second; });
  return sound ? std::nullopt : std::optional(Outcome::kSeedError);
}

Sampled sample_into_arenas(BatchRequest request, int64_t arena_bytes, const Sample& sample) {
  for (int attempt = 0;; ++attempt) {
    Arena arena(arena_bytes);
    request.arena = arena.data();
    request.arena_bytes = arena_bytes;
    try {
      SampleLayout layout = sample(request);
      return {std::move(layout), std::move(arena), arena_bytes};
    } catch (const ArenaTooSmall& small) {
      expect(small.needed_bytes > arena_bytes, "an arena of ", arena_bytes,
             " bytes is too small, but ", small.needed_bytes, " would do");
      // Exactly what it needs, a few times; then with less patience, as owners are.
      arena_bytes = attempt < 8 ? small.needed_bytes : small.needed_bytes * 2;
    }
  }
}

void expect_sound_places(const Sampled& sampled) {
  const SampleLayout& layout = sampled.layout;
  std::vector<std::pair<int64_t, int64_t>> places;  // begin, end
  const auto place = [&](int64_t offset, int64_t num_bytes) {
    expect(offset % kAlignment == 0 && offset + num_bytes <= sampled.arena_bytes, num_bytes,
           " bytes at ", offset, " of an arena of ", sampled.arena_bytes);
    if (num_bytes > 0) places.emplace_back(offset, offset + num_bytes);
  };
  place(0, layout.num_nodes * 8);
  if (layout.queries_offset >= 0) place(layout.queries_offset, layout.num_nodes * 4);
  place(layout.free_begin, layout.free_end - layout.free_begin);
  for (size_t h = 0; h < layout.hops.size(); ++h) {
    const HopLayout& hop = layout.hops[h];
    const bool is_prefix_of_next =
        h + 1 < layout.hops.size() && layout.hops[h + 1].indptr_offset == hop.indptr_offset;
    if (is_prefix_of_next) continue;
    place(hop.indptr_offset, (hop.num_dst + 1) * 4);
    place(hop.indices_offset, hop.num_edges * 4);
    if (hop.edge_ids_offset != -1) place(hop.edge_ids_offset, hop.num_edges * 8);
    if (hop.edge_weights_offset != -1) place(hop.edge_weights_offset, hop.num_edges * 4);
    if (hop.edge_types_offset != -1) place(hop.edge_types_offset, hop.num_edges * 4);
  }
  std::sort(places.begin(), places.end());
  for (size_t i = 1; i < places.size(); ++i) {
    expect(places[i - 1].second <= places[i].first, "two arrays share the bytes from ",
           places[i].first);
  }
}

}  // namespace lg::fuzz
