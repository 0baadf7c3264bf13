#include "find_edges/find_edges.h"

#include <algorithm>
#include <vector>

#include "common/signals.h"

namespace lg {
namespace {

constexpr int64_t kBoundsAhead = 16, kListAhead = 8;  // destinations lie anywhere

void check_destinations(const NodeRange& range, const int64_t* destinations, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!range.has(destinations[i])) {
      fail<SeedError>("destinations[", i, "] is ", destinations[i],
                      ", but nodes that edges of this type end in lie in [", range.first, ", ",
                      range.first + range.count, ").");
    }
  }
}

// Calls visit(i, begin, end) with the positions of each destination's run.
template <class Index, class Visit>
void for_runs(const TypeRuns<Index>& runs, const int64_t* destinations, int64_t count,
              const Visit& visit) {
  check_destinations(runs.destinations, destinations, count);
  SignalWatch signals;
  for (int64_t i = -kBoundsAhead; i < count; ++i) {
    if (i + kBoundsAhead < count) runs.prefetch_bounds(runs.run_of(destinations[i + kBoundsAhead]));
    const int64_t next = i + kListAhead;
    if (next >= 0 && next < count) runs.prefetch_list(runs.run_of(destinations[next]));
    if (i < 0) continue;
    const int64_t run = runs.run_of(destinations[i]);
    visit(i, runs.begin(run), runs.begin(run + 1));
    signals.after(1 + (runs.begin(run + 1) - runs.begin(run)) / 4);
  }
}

}  // namespace

template <class Index, class Value>
void find_edges(const FindEdgesRequest<Index, Value>& request, int64_t* positions) {
  const Scan<Value> find = scan<Value>();
  for_runs(request.runs, request.destinations, request.count,
           [&](int64_t i, int64_t begin, int64_t end) {
             const Value wanted = Value(request.wanted[i]);
             const bool fits = int64_t(wanted) == request.wanted[i];
             if (request.begins) begin = std::clamp(request.begins[i], begin, end);
             const int64_t found = fits ? find(request.values + begin, end - begin, wanted) : -1;
             positions[i] = found < 0 ? -1 : begin + found;
           });
}

template <class Index>
void mark_edges(const MarkEdgesRequest<Index>& request, uint8_t* known) {
  using Row = std::pair<int64_t, int64_t>;  // a source, and where it stands
  std::vector<Row> rows(size_t(request.num_sources));
  for (int64_t s = 0; s < request.num_sources; ++s) rows[size_t(s)] = {request.sources[s], s};
  std::sort(rows.begin(), rows.end());
  // Most in-neighbours are none of the sources: a bit tells, one time in 512 wrongly.
  uint64_t num_words = 8;
  while (num_words < 8 * uint64_t(request.num_sources)) num_words *= 2;
  std::vector<uint64_t> bits(num_words);
  const auto word = [&](int64_t id) -> uint64_t& { return bits[uint64_t(id) / 64 % num_words]; };
  const auto bit = [](int64_t id) { return uint64_t(1) << (uint64_t(id) % 64); };
  for (const Row& row : rows) word(row.first) |= bit(row.first);

  std::fill_n(known, request.num_sources * request.num_destinations, uint8_t(0));
  for_runs(request.runs, request.destinations, request.num_destinations,
           [&](int64_t d, int64_t begin, int64_t end) {
             for (int64_t p = begin; p < end; ++p) {
               const int64_t id = request.runs.indices[p];
               if (!(word(id) & bit(id))) continue;
               auto row = std::lower_bound(rows.begin(), rows.end(), Row{id, 0});
               for (; row != rows.end() && row->first == id; ++row) {
                 const int64_t s = row->second;
                 if (request.until && request.edge_time[p] >= request.until[s]) continue;
                 known[s * request.num_destinations + d] = 1;
               }
             }
           });
}

template void find_edges(const FindEdgesRequest<int32_t, int32_t>&, int64_t*);
template void find_edges(const FindEdgesRequest<int32_t, int64_t>&, int64_t*);
template void find_edges(const FindEdgesRequest<int64_t, int32_t>&, int64_t*);
template void find_edges(const FindEdgesRequest<int64_t, int64_t>&, int64_t*);
template void mark_edges(const MarkEdgesRequest<int32_t>&, uint8_t*);
template void mark_edges(const MarkEdgesRequest<int64_t>&, uint8_t*);

}  // namespace lg
