// queries.h: what the seeds of a batch ask for, as Python has it: ops/ has checked it.
#pragma once

#include "bind/bind.h"
#include "sample_typed/queries.h"

namespace lg::bind {

struct QueryArrays {
  Maybe<int32_t> of_seed;
  Maybe<uint32_t> name, since, until;
  Maybe<int64_t> excluded;
  Maybe<int32_t> excluded_of;
  int64_t num_queries;
  int shift;
  bool by_row, along_path;
  uint32_t path_end;

  Queries queries() const {
    return {
        num_queries, shift,          data(of_seed),     data(name),
        by_row,      data(since),    data(until),       along_path,
        path_end,    data(excluded), data(excluded_of), excluded ? int64_t(excluded->size()) : 0};
  }
};

inline Queries queries_of(const QueryArrays* arrays) {
  return arrays ? arrays->queries() : Queries();
}

}  // namespace lg::bind
