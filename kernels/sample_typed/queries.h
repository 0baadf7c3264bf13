// queries.h: what the seeds of a batch ask for, each of its own query: which edges count for it, and by
// which name they are drawn. A node belongs to the query that it was found for.
//
// In a batch and in its table, the number of a node's query stands above its id, `shift` bits up; and so
// it does above the position of an edge, from where it comes to the neighbour.
#pragma once

#include <cstdint>
#include <vector>

#include "common/batch.h"

namespace lg {

// What one batch asks for; null: what its comment says.
struct Queries {
  int64_t num_queries = 1;
  int shift = 62;                        // bits of a node and of a position
  const int32_t* of_seed = nullptr;      // no queries: all seeds are of number 0
  const uint32_t* name = nullptr;        // the batch's step
  bool by_row = false;                   // names are seed rows: draws depend on nothing else
  const uint32_t* since = nullptr;       // the first time code
  const uint32_t* until = nullptr;       // beyond the last one
  bool along_path = false;               // a node asks for what came before the edge that found it
  uint32_t path_end = 0;                 // or, where this is 1, at its time
  const int64_t* excluded = nullptr;     // positions of edges into seeds, or along paths of any
  const int32_t* excluded_of = nullptr;  // and the query that does not count them
  int64_t num_excluded = 0;
};

// The queries of nodes found along paths: those of a seed's query and of one bound. Numbers below
// num_queries are the queries' own; further ones come as they are found.
class PathQueries {
 public:
  void start(const Queries& queries) {
    table_.clear(list_);
    list_ = {};
    outer_of_ = &queries;
    for (int64_t q = 0; q < queries.num_queries; ++q) number_of(q, queries.until[q]);
  }

  // What number_of() will look at.
  void prefetch(int64_t outer, uint32_t until) { table_.prefetch(outer << 32 | until); }

  int64_t number_of(int64_t outer, uint32_t until) {
    list_.ids = reserve(keys_, list_.count + 1);
    const int32_t number = table_.insert(outer << 32 | until, list_);
    if (outer_of_->shift + bits(list_.count - 1) > 63) {
      fail<SamplerConfigError>(
          "A batch along paths has ", list_.count,
          " times at which it asks for edges, of which each needs a number of its own "
          "above those of nodes and edges, within 63 bits. Use a smaller batch.");
    }
    return number;
  }

  int64_t outer(int64_t number) const { return keys_[size_t(number)] >> 32; }
  uint32_t until(int64_t number) const { return uint32_t(keys_[size_t(number)]); }

  static int bits(int64_t number) {
    return number == 0 ? 0 : 64 - __builtin_clzll(uint64_t(number));
  }

 private:
  const Queries* outer_of_ = nullptr;
  HashTable table_;
  NodeList list_{};
  std::vector<int64_t> keys_;  // outer query above bound
};

// The nodes of a batch and the values of its edge stream, as Batch takes them. kMany: there may be several
// queries; otherwise all is of number 0.
template <bool kMany>
class QueryIds {
 public:
  QueryIds(const Queries& queries, const PathQueries* paths)
      : of_seed_(queries.of_seed),
        paths_(paths),
        is_one_(queries.num_queries == 1 && !paths),
        differ_(queries.name || queries.since || queries.until),
        shift_(queries.shift),
        mask_((int64_t(1) << queries.shift) - 1) {}

  int64_t of_seed(int64_t i, int64_t seed) const {
    return kMany && of_seed_ ? above(of_seed_[i]) | seed : seed;
  }
  int64_t most_nodes(int64_t num_graph_nodes) const {
    return is_one_ ? num_graph_nodes : INT64_MAX;
  }

  int64_t above(int64_t query) const { return kMany ? query << shift_ : 0; }
  int64_t query(int64_t value) const { return kMany ? value >> shift_ : 0; }
  int64_t node(int64_t value) const { return kMany ? value & mask_ : value; }
  int64_t position(int64_t value) const { return node(value); }
  int64_t at_neighbor(int64_t value, int64_t neighbor) const {
    return kMany ? (value & ~mask_) | neighbor : neighbor;
  }

  // Whether a batch says which query each node is of: not where all seeds always share one.
  bool has_queries() const { return of_seed_ != nullptr && differ_; }

  // Nodes become ids of the graph again, and `queries` those of the seeds.
  void separate(const NodeList& nodes, int32_t* queries) const {
    for (int64_t i = 0; i < nodes.count; ++i) {
      const int64_t number = query(nodes.ids[i]);
      queries[i] = int32_t(paths_ ? paths_->outer(number) : number);
      nodes.ids[i] = node(nodes.ids[i]);
    }
  }

 private:
  const int32_t* of_seed_;
  const PathQueries* paths_;
  bool is_one_, differ_;
  int shift_;
  int64_t mask_;
};

}  // namespace lg
