// importance.h: with which probability LABOR-i keeps each in-neighbour of a hop's destinations.
//
// Source t has a weight pi_t, destination s a scale c_s: t is kept for s with p = min(1, c_s pi_t).
// The scale is such that the mean over those kept varies as one over `fanout` drawn uniformly does:
//   sum over t -> s of 1 / p = degree^2 / fanout     (c_s = max 1 / pi_t where degree <= fanout)
// From pi_t = 1 on, an iteration multiplies pi_t by the largest c_s of its destinations, which lowers
// the expected number of distinct sources, sum over t of min(1, max c_s pi_t).
// Source: Balin & Catalyurek, "Layer-neighbor sampling", NeurIPS'23, section 3.
//
// Scales are found from inverses of pi_t: a source is certain where inverse <= c. Arithmetic is in
// float64 and in a stated order, and no product is added to anything, so that nothing can be fused:
// every machine finds the same bits.
// Takes 4 bytes for each edge into the hop's destinations, 40 for each distinct source, and a second
// node table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "common/fetch.h"
#include "common/scan_neighbors.h"
#include "common/signals.h"
#include "sample_labor/draw_sources.h"
#include "sample_labor/sample_labor.h"
#include "sample_labor/sum_above.h"

namespace lg {

struct Source {
  double pi;
  double draw;  // the upper 53 bits of its source draw: a whole number

  // Whether it is kept with scale c: draw * 2^-53 < min(1, c pi). Both sides are exact but for the
  // product.
  bool is_kept(double c) const { return draw < c * 0x1p53 * pi; }
  double probability(double c) const { return std::min(1.0, c * pi); }
};

// Table: common/node_table.h; it numbers the sources in order of first occurrence.
template <class Table, class Index>
class Importance {
 public:
  Importance(Workspace& workspace, const LaborRequest<Index>& request)
      : request_(request), memory_(workspace.scratch<Memory>()) {
    if (memory_.table) return;
    if constexpr (std::is_constructible_v<Table, int64_t>) {
      memory_.table.emplace(workspace.num_nodes);
    } else {
      memory_.table.emplace();
    }
  }

  // Destinations are nodes[0] to nodes[num_dst - 1]; fanout >= 1.
  void solve(const int64_t* nodes, int64_t num_dst, int64_t fanout, const SourceKey& key) {
    num_dst_ = num_dst;
    fanout_ = fanout;
    number_sources(nodes);
    std::fill_n(reserve(memory_.inverse, num_sources_), num_sources_, 1.0);
    reserve(memory_.largest_scale, num_sources_);
    double* scale = reserve(memory_.scale, num_dst);
    for (int64_t i = 0; i < num_dst; ++i) {
      scale[i] = degree(i) <= fanout ? 1.0 : double(fanout) / double(degree(i));
    }
    double before = std::numeric_limits<double>::infinity();
    const int64_t importance = request_.importance;
    for (int64_t i = 0; importance == kUntilConverged || i < importance; ++i) {
      divide_by_largest_scales();
      for (int64_t dst = 0; dst < num_dst; ++dst) scale[dst] = scale_of(dst);
      if (importance != kUntilConverged) continue;
      const double expected = sum_inverses_up_to_one(memory_.inverse.data(), num_sources_);
      if (expected >= kConverged * before) break;
      before = expected;
    }
    write_sources(key);
  }

  // What solve() found. A destination's edges come in adjacency order; kAhead more may be read, so
  // that their sources' entries can be fetched.
  static constexpr int64_t kAhead = 64;
  const int32_t* sources_of(int64_t dst) const {
    return memory_.edge_source.data() + memory_.first_edge[dst];
  }
  double scale(int64_t dst) const { return memory_.scale[dst]; }
  const Source* sources() const { return memory_.sources.data(); }

 private:
  static constexpr double kConverged = 0.9999;  // of the sources expected before

  struct Memory {
    std::optional<Table> table;
    std::vector<int64_t> first_edge;             // [destinations + 1]
    std::vector<double> scale;                   // [destinations]
    std::vector<int32_t> edge_source;            // [edges]
    std::vector<int64_t> nodes;                  // [sources]
    std::vector<double> inverse, largest_scale;  // [sources]
    std::vector<Source> sources;                 // [sources]
    std::vector<double> gathered;                // [largest degree]
  };

  // Clears the table, whatever happens.
  struct Numbering {
    Table& table;
    NodeList list{nullptr, 0};
    ~Numbering() { table.clear(list); }
  };

  int64_t degree(int64_t dst) const {
    return memory_.first_edge[dst + 1] - memory_.first_edge[dst];
  }

  void number_sources(const int64_t* nodes) {
    Numbering numbering{*memory_.table};
    NodeList& list = numbering.list;
    int64_t* first_edge = reserve(memory_.first_edge, num_dst_ + 1);
    int64_t num_edges = first_edge[0] = 0;
    const auto prefetch = [&](int64_t source) { numbering.table.prefetch(source); };
    const auto visit = [&](const NeighborRun& run) {
      const int64_t size = run.end - run.begin;
      signals_.after(size);
      check_num_sources(list.count + size);
      list.ids = reserve(memory_.nodes, list.count + size + 1);
      int32_t* edge_source = reserve(memory_.edge_source, num_edges + size) + num_edges;
      insert_many(numbering.table, request_.graph.indices + run.begin, size, list, edge_source);
      first_edge[run.index + 1] = num_edges += size;
    };
    NeighborScan(request_.graph, nodes, num_dst_).run(prefetch, visit);
    std::fill_n(reserve(memory_.edge_source, num_edges + kAhead) + num_edges, kAhead, 0);
    num_sources_ = list.count;
  }

  void check_num_sources(int64_t bound) const {
    const int64_t limit = request_.batch.max_local;
    if (std::min(bound, request_.graph.num_nodes) > limit) {
      fail<SamplerConfigError>("importance=", request_.importance, " numbers the in-neighbours of ",
                               num_dst_, " nodes, which may be more than ", limit,
                               ", beyond int32. Use importance=0, or a smaller batch.");
    }
  }

  void divide_by_largest_scales() {
    double* largest = memory_.largest_scale.data();
    std::fill_n(largest, num_sources_, 0.0);
    for (int64_t dst = 0; dst < num_dst_; ++dst) {
      const int32_t* source = sources_of(dst);
      const double scale = memory_.scale[dst];
      signals_.after(degree(dst));
      for (int64_t j = 0; j < degree(dst); ++j) {
        fetch_line(&largest[source[j + kAhead]]);
        largest[source[j]] = std::max(largest[source[j]], scale);
      }
    }
    for (int64_t t = 0; t < num_sources_; ++t) memory_.inverse[t] /= largest[t];
  }

  // Sources kept for certain count one each, the others inverse / c: so c follows from which are
  // certain, by Newton's method. The sum is convex in 1 / c: from the second step on c only grows.
  double scale_of(int64_t dst) {
    const int64_t count = degree(dst);
    signals_.after(2 * count);
    const int32_t* source = sources_of(dst);
    double* inverse = reserve(memory_.gathered, count);
    for (int64_t j = 0; j < count; ++j) {
      fetch_line(&memory_.inverse[source[j + kAhead]]);
      inverse[j] = memory_.inverse[source[j]];
    }
    if (count <= fanout_) return count ? *std::max_element(inverse, inverse + count) : 0.0;
    const double target = double(count) * double(count) / double(fanout_);
    double c = 1.0;
    int64_t before = -1;
    for (int step = 0;; ++step) {
      const SumAbove uncertain = sum_above(inverse, count, c);
      const int64_t certain = count - uncertain.count;
      if (certain == before || (step > 1 && certain < before)) return c;
      before = certain;
      c = uncertain.sum / (target - double(certain));
    }
  }

  void write_sources(const SourceKey& key) {
    Source* sources = reserve(memory_.sources, num_sources_);
    uint64_t draws[kMaxSourceBlock];
    for (int64_t begin = 0; begin < num_sources_; begin += kMaxSourceBlock) {
      const int64_t size = std::min(kMaxSourceBlock, num_sources_ - begin);
      draw_sources_of(request_.graph, key, memory_.nodes.data() + begin, size, draws);
      for (int64_t j = 0; j < size; ++j) {
        sources[begin + j] = {1.0 / memory_.inverse[begin + j], double(draws[j] >> 11)};
      }
    }
  }

  const LaborRequest<Index>& request_;
  Memory& memory_;
  int64_t num_dst_ = 0, num_sources_ = 0, fanout_ = 0;
  SignalWatch signals_;
};

}  // namespace lg
