// pick_typed.h: up to fanouts[type] eligible in-neighbours of each destination and type.
//
// Where something is left out of runs, by time or otherwise, a chunk's are listed and their times looked for when it
// begins, a chunk before they are picked from. Whole runs are read as they are picked from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/fetch.h"
#include "common/isa.h"
#include "common/signals.h"
#include "sample_typed/sample_typed.h"
#include "sample_typed/typed_scratch.h"

namespace lg {

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
    scratch_.rules.clear();
    for (int32_t type = 0; type < request_.num_types; ++type) {
      scratch_.rules.push_back(RunRule::of(fanouts_[type], request_.replace,
                                           request_.is_untyped ? hop_ : typed_hop(hop_, type)));
    }
    if constexpr (kByType) scratch_.slot_rules.start(runs_, scratch_.rules);
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
    int64_t all = 1, most = 0;  // one beyond the last is written
    for (int i = 0; i < chunk.size; ++i) {
      const int64_t num_runs = runs_.num_runs(ids_.node(nodes[i]));
      all += num_runs;
      most = std::max(most, num_runs);
    }
    part.is_plain = most <= kMaxRuns && takes_whole_runs(chunk);
    if (part.is_plain) return;
    Run* run = reserve(part.runs, all);
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
    const Part& part = scratch_.parts[chunk.parity];
    chunk.num_edges = 0;
    if (part.is_plain) {
      pick_from_whole_runs(batch, stream, nodes, chunk);
    } else {
      pick_eligible(batch, stream, nodes, chunk);
    }
    resize_chunk(chunk);
  }

 private:
  static constexpr bool kByType = std::is_same_v<Runs, DenseRuns<uint32_t>>;

  using Run = TypedScratch::Run;
  using Part = TypedScratch::Part;

  // Whether nothing takes from what the chunk's destinations choose among.
  bool takes_whole_runs(const Chunk& chunk) const {
    if (has_bounds_ || queries_.along_path || (request_.newest && request_.times.timed))
      return false;
    return scratch_.exclusion.empty() || chunk.begin >= request_.batch.num_seeds;
  }

  template <class Batch, class Stream>
  void pick_from_whole_runs(Batch& batch, Stream& stream, const int64_t* nodes, Chunk& chunk) {
    for (int i = 0; i < chunk.size; ++i) draws_[i] = draws_of(nodes[i]);
    for (int i = 0; i < chunk.size;) {
      const int end = i + fill_group(nodes, i, chunk);
      int64_t num_edges = 0;
      for (; i < end; ++i) num_edges += chunk.count[i];
      put_group(batch, stream, chunk, num_edges);
    }
  }

  // Collects the runs of destinations of a chunk, from `first` on, and returns of how many of them.
  int fill_group(const int64_t* nodes, int first, Chunk& chunk) {
#ifdef LG_X86
    if constexpr (kByType) {
      if (const Isa isa = used_isa(); isa != Isa::kBaseline) {
        group_.begin(key_, request_.replace);
        const RunsOf from{runs_,          scratch_.slot_rules.columns(),
                          nodes + first,  ids_.node(-1),
                          draws_ + first, chunk.size - first};
        const auto fill = isa == Isa::kAvx512 ? fill_runs_avx512 : fill_runs_avx2;
        return fill(from, group_, chunk.count + first);
      }
    }
#endif
    const RunRule* rules = scratch_.rules.data();
    RunChunkFiller group(group_, key_, request_.replace);
    int64_t num_edges = 0;
    int i = first;
    for (; i < chunk.size && num_edges < kManyEdges; ++i) {
      const int64_t node = ids_.node(nodes[i]), query = nodes[i] - node;
      if (!group.has_room(runs_.num_runs(node))) break;
      int64_t count = 0;
      runs_.visit(node, [&](int32_t type, int64_t start, uint32_t degree) {
        count += group.add(draws_[i], type, rules[type], query | start, degree);
      });
      num_edges += chunk.count[i] = count;
    }
    group.finish();
    return i - first;
  }

  template <class Batch, class Stream>
  void pick_eligible(Batch& batch, Stream& stream, const int64_t* nodes, Chunk& chunk) {
    Part& part = scratch_.parts[chunk.parity];
    if (has_bounds_) narrow(part);
    for (int i = 0; i < chunk.size; ++i) draws_[i] = draws_of(nodes[i]);
    std::fill_n(chunk.count, chunk.size, 0);
    for (int64_t r = 0; r < part.num_runs;) {
      int64_t num_edges = 0;
      r += group_runs(part.runs.data() + r, part.num_runs - r, chunk, num_edges);
      change(nodes, put_group(batch, stream, chunk, num_edges), num_edges);
    }
  }

  // Writes the positions and types of the group's edges, and returns where.
  template <class Batch, class Stream>
  int64_t* put_group(Batch& batch, Stream& stream, Chunk& chunk, int64_t num_edges) {
    const int64_t before = chunk.num_edges, end = before + num_edges;
    batch.check_num_edges(chunk.first_edge + end);
    signals_.after(num_edges);
    int64_t* position = stream.reserve(end + kVectorSlack) + before;
    int32_t* types = nullptr;
    if (!request_.is_untyped) {
      types = reserve(batch.edges().types, chunk.first_edge + end + kVectorSlack) +
              chunk.first_edge + before;
    }
    scratch_.positions.choose(group_, position, types);
    chunk.num_edges = end;
    return position;
  }

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

  // But for the hop.
  NodeDraws draws_of(int64_t value) const {
    const int64_t query = ids_.query(value);
    uint32_t step = queries_.name ? queries_.name[outer(query)] : request_.batch.step;
    if (queries_.along_path && until(query) != queries_.until[outer(query)]) {
      step ^= hash32(until(query));
    }
    return node_draws(key_, step, 0, request_.graph.name(ids_.node(value)));
  }

  // Collects runs of a chunk until there are as many as are drawn from at once, and returns how many.
  int64_t group_runs(const Run* runs, int64_t num_runs, Chunk& chunk, int64_t& num_edges) {
    scratch_.skips.clear();
    RunChunkFiller group(group_, key_, request_.replace);
    const bool excludes = !scratch_.exclusion.empty(), newest = request_.newest;
    int64_t r = 0;
    for (; r < num_runs && group.has_room(1) && num_edges < kManyEdges; ++r) {
      const Run& run = runs[r];
      const RunRule& rule = scratch_.rules[size_t(run.type)];
      int64_t start = run.start, degree = run.degree;
      ExcludedPart left_out{};
      // Along paths a seed's node is found again, as another one.
      if (excludes && (queries_.along_path || chunk.begin + run.dst < request_.batch.num_seeds)) {
        const int64_t query = ids_.query(start), moved = ids_.above(query - outer(query));
        left_out = scratch_.exclusion.edges().within(start, start + degree, moved);
        degree -= left_out.size();
      }
      if (newest && is_timed(run.type) && fanouts_[run.type] != kAllNeighbors &&
          degree > rule.fanout) {
        start += degree - rule.fanout;
        degree = rule.fanout;
      }
      dst_[group.size()] = run.dst;
      const int64_t count = group.add(draws_[run.dst], run.type, rule, start, degree);
      if (left_out.size() > 0) scratch_.skips.push_back({num_edges, count, left_out});
      chunk.count[run.dst] += count;
      num_edges += count;
    }
    group.finish();
    return r;
  }

  // What becomes of positions that were drawn.
  void change(const int64_t* nodes, int64_t* position, int64_t num_edges) {
    for (const TypedScratch::Skip& skip : scratch_.skips) {
      for (int64_t j = skip.first; j < skip.first + skip.count; ++j) {
        position[j] = skip.part.skip(position[j]);
      }
    }
    if (queries_.along_path) ask_along(nodes, position, num_edges);
  }

  // What an edge finds asks for what came before the edge: in stages, so that none waits for memory.
  void ask_along(const int64_t* nodes, int64_t* position, int64_t num_edges) {
    const uint32_t* code = request_.times.code;
    for (int64_t j = 0; j < num_edges; ++j) {
      fetch_line(&code[ids_.position(position[j])]);
    }
    const auto for_timed = [&](const auto& visit) {
      for (int64_t i = 0, j = 0; i < group_.size; ++i) {
        const int64_t end = j + group_.count[i], query = ids_.query(nodes[dst_[i]]);
        if (is_timed(group_.type[i])) {
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
  int32_t dst_[kMaxRuns + 1];  // of the group's runs, where they are listed
  SignalWatch signals_;
};

}  // namespace lg
