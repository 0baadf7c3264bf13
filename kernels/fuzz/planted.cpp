// planted.cpp: faults on purpose, one for each that the driver is there to find. A test runs them
// all (tests/fuzz/test_sanitizers.py): a build that has lost a sanitizer, in the driver or in the
// kernels, lets one pass.
#include <numeric>

#include "fuzz/exact.h"
#include "fuzz/target.h"
#include "gather_rows/gather_rows.h"
#include "sample_neighbors/sample_neighbors.h"

namespace lg::fuzz {
namespace {

// Rows of four bytes are copied by a move and not by memcpy, which any build could watch.
void gather_four_bytes_each(int64_t num_ids, int64_t num_out, int64_t count) {
  const Exact<uint8_t> table(4);
  const Exact<int64_t> ids(num_ids);
  Exact<uint8_t> out(num_out * 4);
  gather_rows(table.data(), 1, 4, ids.data(), nullptr, count, out.data(), count);
}

// Below the checks, which would refuse such a graph.
void sample_unchecked(const Exact<int64_t>& indptr, const Exact<int64_t>& indices) {
  const Exact<int64_t> seeds(1);
  Arena arena(1 << 12);
  Workspace workspace(indptr.size() - 1, false);
  SampleRequest<int64_t> request{
      {{indptr.data(), indices.data(), indptr.size() - 1}, {}}, {1}, false, Expand::kAll, false};
  request.batch.seeds = seeds.data();
  request.batch.num_seeds = 1;
  request.batch.arena = arena.data();
  request.batch.arena_bytes = 1 << 12;
  sample_neighbors(workspace, request);
}

}  // namespace

LG_PLANTED_FAULT(kernel_writes_beyond) { gather_four_bytes_each(9, 8, 9); }

LG_PLANTED_FAULT(kernel_reads_beyond) { gather_four_bytes_each(8, 9, 9); }

LG_PLANTED_FAULT(kernel_marks_a_node_beyond_its_table) {
  sample_unchecked(Exact<int64_t>(std::vector<int64_t>{0, 1}), Exact<int64_t>(1, 1));
}

LG_PLANTED_FAULT(kernel_overflows) {
  sample_unchecked(Exact<int64_t>(std::vector<int64_t>{-2, INT64_MAX}), Exact<int64_t>(1));
}

LG_PLANTED_FAULT(vector_read_beyond) {
  std::vector<int64_t> values(3);
  values.reserve(8);  // on the heap it is within: the library's own assertions must see it
  expect(values[size_t(3 + choose.below(1))] == 0, "wrong");
}

// As masked vector stores are.
__attribute__((no_sanitize("address"), noinline)) void set_unwatched(volatile int64_t* values,
                                                                     int64_t i) {
  values[i] = 1;
}

LG_PLANTED_FAULT(unwatched_write_beyond) {
  Exact<int64_t> values(3);
  set_unwatched(values.data(), 4);
}

LG_PLANTED_FAULT(memory_leaked) {
  for (int i = 0; i < 9; ++i) {  // a stale register may still know the last one
    expect(std::make_unique<Exact<int64_t>>(8).release() != nullptr, "no memory");
  }
}

LG_PLANTED_FAULT(memory_used_after_free) {
  std::unique_ptr<Exact<int64_t>> values(new Exact<int64_t>(3));
  const volatile int64_t* kept = values->data();
  values.reset();
  expect(kept[0] == 0, "wrong");
}

LG_PLANTED_FAULT(wrong_result) { expect(choose.below(1) == 1, "0 is not 1"); }

LG_PLANTED_FAULT(unannounced_exception) { std::vector<int>().at(size_t(choose.below(9))); }

LG_PLANTED_FAULT(endless_case) {
  while (choose.word() != 0 || choose.word() != 0) continue;
}

}  // namespace lg::fuzz
