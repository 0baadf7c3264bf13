// pick_typed.h: up to fanouts[type] eligible in-neighbours of each destination and type.
//
// A chunk's runs are found and their times looked for when it begins, a chunk before they are picked from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/fetch.h"
#include "common/signals.h"
#include "sample_typed/exclusion.h"
#include "sample_typed/run_positions.h"
#include "sample_typed/sample_typed.h"
#include "sample_typed/time_search.h"

namespace lg {

struct TypedScratch {
  // The in-neighbours of one destination by edges of one type.
  struct Run {
    int64_t start;  // the query above the position
    uint32_t degree;
    int32_t type, dst;  // dst: in the chunk
  };
  struct Part {
    std::vector<Run> runs;
    int64_t num_runs = 0;
    TimeSearch search;
  };
  // A run whose positions change once they are drawn.
  struct Skip {
    int64_t first, count;  // in the chunk's positions
    ExcludedPart part;
  };

  Part parts[2];
  std::vector<Skip> skips;
  RunPositions positions;
  PathQueries paths;
  Exclusion exclusion;
};

template <class Index, class Runs, class Ids>
class TypedPicker {
 public:
  TypedPicker(TypedScratch& scratch, const SampleTypedRequest<Index>& request, const Runs& runs,
              const Ids& ids)
      : request_(request),
        queries_(request.queries),
        runs_(runs),
        ids_(ids),
        key_(stream_key(request.batch.seed, request.batch.epoch,
                        request.queries.by_row ? kRowsTag : kKeysTag)),
        has_bounds_(request.times.code && (queries_.since || queries_.until)),
        scratch_(scratch) {}

  void start_hop(uint32_t hop) {
    hop_ = request_.batch.hop + hop;
    fanouts_ = request_.fanouts.data() + hop * request_.num_types;
    chunk_size_ = kMinChunk;
  }

  int chunk_size() const { return chunk_size_; }

  int64_t most_draws() const {
    int64_t all = 0;
    for (int64_t type = 0; type < request_.num_types; ++type) all += num_drawn(type);
    return all;
  }
  // Times may leave less.
  int64_t num_draws(int64_t value) const {
    int64_t all = 0;
    runs_.visit(ids_.node(value), [&](int32_t type, int64_t, uint32_t degree) {
      all += degree > 0 ? num_drawn(type) : 0;
    });
    return all;
  }

  void begin(const int64_t* nodes, Chunk& chunk) {
    Part& part = scratch_.parts[chunk.parity];
    int64_t most = 1;  // one beyond the last is written
    for (int i = 0; i < chunk.size; ++i) most += runs_.num_runs(ids_.node(nodes[i]));
    Run* run = reserve(part.runs, most);
    for (int i = 0; i < chunk.size; ++i) {
      const int64_t node = ids_.node(nodes[i]), query = nodes[i] - node;
      runs_.visit(node, [&, fanouts = fanouts_](int32_t type, int64_t start, uint32_t degree) {
        *run = {query | start, degree, type, i};
        run += (degree > 0) & (fanouts[type] != 0);  // no one knows: hence no branch
      });
    }
    part.num_runs = run - part.runs.data();
    if (has_bounds_) open_searches(nodes, part);
  }

  template <class Batch, class Stream>
  void pick(Batch& batch, Stream& stream, const int64_t* nodes, Chunk& chunk) {
    Part& part = scratch_.parts[chunk.parity];
    if (has_bounds_) narrow(part);
    name_draws(nodes, chunk);
    std::fill_n(chunk.count, chunk.size, 0);
    chunk.num_edges = 0;
    for (int64_t r = 0; r < part.num_runs;) {
      const Run* first = part.runs.data() + r;
      r += group_runs(first, part.num_runs - r, batch.num_seeds(), chunk);
      batch.check_num_edges(chunk.first_edge + chunk.num_edges);
      const int64_t before = chunk.num_edges - num_grouped_;
      signals_.after(num_grouped_);
      int64_t* position = stream.reserve(chunk.num_edges + kVectorSlack) + before;
      scratch_.positions.choose(group_, position);
      change(nodes, first, position);
      if (!request_.is_untyped) {
        int32_t* types =
            reserve(batch.edges().types, chunk.first_edge + chunk.num_edges + kVectorSlack);
        put_types(first, types + chunk.first_edge + before);
      }
    }
    resize_chunk(chunk);
  }

 private:
  using Run = TypedScratch::Run;
  using Part = TypedScratch::Part;

  int64_t num_drawn(int64_t type) const {
    return request_.replace ? std::max<int64_t>(fanouts_[type], 0) : 0;
  }

  bool is_timed(int32_t type) const { return request_.times.timed && request_.times.timed[type]; }

  uint32_t until(int64_t query) const {
    return queries_.along_path ? scratch_.paths.until(query) : queries_.until[query];
  }
  int64_t outer(int64_t query) const {
    return queries_.along_path ? scratch_.paths.outer(query) : query;
  }

  void open_searches(const int64_t* nodes, Part& part) {
    TimeSearch& search = part.search;
    search.start(request_.times.code, 2 * part.num_runs);
    for (int64_t r = 0; r < part.num_runs; ++r) {
      const Run& run = part.runs[size_t(r)];
      if (!is_timed(run.type)) continue;
      const int64_t query = ids_.query(nodes[run.dst]), begin = ids_.position(run.start);
      const int64_t end = begin + run.degree;
      if (queries_.until) search.open(begin, end, until(query));
      if (queries_.since) search.open(begin, end, queries_.since[outer(query)]);
    }
  }

  // Leaves of each run what is eligible.
  void narrow(Part& part) {
    part.search.finish();
    int64_t found = 0;
    for (int64_t r = 0; r < part.num_runs; ++r) {
      Run& run = part.runs[size_t(r)];
      if (!is_timed(run.type)) continue;
      const int64_t position = ids_.position(run.start);
      int64_t begin = position, end = position + run.degree;
      if (queries_.until) end = part.search.found(found++);
      if (queries_.since) begin = std::min(part.search.found(found++), end);
      run.start += begin - position;
      run.degree = uint32_t(end - begin);
    }
  }

  void name_draws(const int64_t* nodes, const Chunk& chunk) {
    for (int i = 0; i < chunk.size; ++i) {
      const int64_t query = ids_.query(nodes[i]);
      uint32_t step = queries_.name ? queries_.name[outer(query)] : request_.batch.step;
      if (queries_.along_path && until(query) != queries_.until[outer(query)]) {
        step ^= hash32(until(query));
      }
      draws_[i] = node_draws(key_, step, 0, request_.graph.name(ids_.node(nodes[i])));
    }
  }

  static constexpr int64_t kManyEdges = int64_t(1) << 20;  // signals are looked at between groups

  // Collects runs of a chunk until there are as many as are drawn from at once, and returns how many.
  int64_t group_runs(const Run* runs, int64_t num_runs, int64_t num_seeds, Chunk& chunk) {
    scratch_.skips.clear();
    RunChunkFiller group(group_, key_, request_.replace);
    const bool excludes = !scratch_.exclusion.empty(), newest = request_.newest;
    const bool is_untyped = request_.is_untyped;
    int64_t num_edges = 0, r = 0;
    for (; r < num_runs && !group.is_full() && num_edges < kManyEdges; ++r) {
      const Run& run = runs[r];
      const int64_t fanout = fanouts_[run.type];
      int64_t start = run.start, degree = run.degree;
      ExcludedPart left_out{};
      // Along paths a seed's node is found again, as another one.
      if (excludes && (queries_.along_path || chunk.begin + run.dst < num_seeds)) {
        const int64_t query = ids_.query(start), moved = ids_.above(query - outer(query));
        left_out = scratch_.exclusion.edges().within(start, start + degree, moved);
        degree -= left_out.size();
      }
      if (newest && is_timed(run.type) && fanout != kAllNeighbors && degree > fanout) {
        start += degree - fanout;
        degree = fanout;
      }
      const NodeDraws& draws = draws_[run.dst];
      const uint32_t hop = is_untyped ? hop_ : typed_hop(hop_, run.type);
      const int64_t count = group.add(draws.node_low, draws.node_high_hop | hop << 16, draws.step,
                                      start, degree, fanout);
      if (left_out.size() > 0) scratch_.skips.push_back({num_edges, count, left_out});
      chunk.count[run.dst] += count;
      num_edges += count;
    }
    group.finish();
    num_grouped_ = num_edges;
    chunk.num_edges += num_edges;
    return r;
  }

  // What becomes of positions that were drawn.
  void change(const int64_t* nodes, const Run* runs, int64_t* position) {
    for (const TypedScratch::Skip& skip : scratch_.skips) {
      for (int64_t j = skip.first; j < skip.first + skip.count; ++j) {
        position[j] = skip.part.skip(position[j]);
      }
    }
    if (queries_.along_path) ask_along(nodes, runs, position);
  }

  // What an edge finds asks for what came before the edge: in stages, so that none waits for memory.
  void ask_along(const int64_t* nodes, const Run* runs, int64_t* position) {
    const uint32_t* code = request_.times.code;
    for (int64_t j = 0; j < num_grouped_; ++j) {
      fetch_line(&code[ids_.position(position[j])]);
    }
    const auto for_timed = [&](const auto& visit) {
      for (int64_t i = 0, j = 0; i < group_.size; ++i) {
        const int64_t end = j + group_.count[i], query = ids_.query(nodes[runs[i].dst]);
        if (is_timed(runs[i].type)) {
          const int64_t of_seed = outer(query);
          for (; j < end; ++j) {
            const int64_t at = ids_.position(position[j]);
            visit(position[j], at, of_seed, code[at] + queries_.path_end);
          }
        }
        j = end;
      }
    };
    for_timed([&](int64_t&, int64_t, int64_t of_seed, uint32_t bound) {
      scratch_.paths.prefetch(of_seed, bound);
    });
    for_timed([&](int64_t& value, int64_t at, int64_t of_seed, uint32_t bound) {
      value = ids_.above(scratch_.paths.number_of(of_seed, bound)) | at;
    });
  }

  // Writes as many fours for every run as the one with most edges has, where these are few: that spares a
  // branch that cannot be predicted.
  void put_types(const Run* runs, int32_t* types) const {
    constexpr int64_t kMostAlike = 16;
    const int64_t most = group_.most_taken;
    for (int i = 0; i < group_.size; ++i) {
      const int32_t type = runs[i].type;
      const int64_t count = group_.count[i], end = most <= kMostAlike ? most : count;
      const int32_t four[4] = {type, type, type, type};
      for (int64_t j = 0; j < end; j += 4) std::memcpy(types + j, four, sizeof(four));
      types += count;
    }
  }

  // As many destinations as have edges enough for memory to be busy, and for vectors of runs. Measured on AVX-512:
  // with 256 edges a batch takes 5 to 8 % longer, with 768 1 to 3 % less, but these fill a first cache.
  void resize_chunk(const Chunk& chunk) {
    constexpr int64_t kEdges = 512;
    const int64_t each = std::max<int64_t>(chunk.num_edges / chunk.size, 1);
    chunk_size_ = int(std::clamp<int64_t>(kEdges / each, kMinChunk / 2, kMaxChunk));
  }

  const SampleTypedRequest<Index>& request_;
  const Queries& queries_;
  const Runs& runs_;
  const Ids& ids_;
  const StreamKey key_;
  const bool has_bounds_;
  TypedScratch& scratch_;
  uint32_t hop_ = 0;
  const int64_t* fanouts_ = nullptr;
  int chunk_size_ = kMinChunk;
  NodeDraws draws_[kMaxChunk];  // of the destinations, but for the hop
  RunChunk group_;
  int64_t num_grouped_ = 0;  // edges
  SignalWatch signals_;
};

}  // namespace lg
