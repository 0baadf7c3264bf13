// dynamic_cache.h: rows of the nodes that were asked for last; who is missed is admitted, and another
// goes for it, by the rules of evictor.h.
//
// A batch is one step, as BGL counts: it hits what is there when it comes, and then its misses are
// admitted, in its order. So:
//
//   read(batch, ...)   copies the rows that are there to the batch's output; visits count.
//   admit(batch, ...)  takes the rows of those missed, which the caller has put there, from the output.
//   visit(ids)         both, without rows: the number of hits.
//
// Threads may call any of them at any time. Reads run beside each other; an admission waits for them
// and they for it, so no slot changes while it is read. Who was admitted in between by another thread
// is not admitted again. BGL queues all operations on a cache instead, for one thread to do (3.2.3).
// That would be 54 % of the time of a gather of 512-byte rows from memory, of which a third hits;
// admissions are 33 %, and in front of a disk next to nothing. So the lock is one: shards by node id
// would each go over the whole batch.
//
// Processes may share a cache, in memory that all of them have mapped, under a lock of theirs: held by all
// who read, or by one who admits. One that dies while it admits leaves a torn cache, from which nothing
// is read, and which who admits next empties.
//
// Ids and positions are checked before anything is read, written or counted: SeedError.
#pragma once

#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "common/huge_array.h"
#include "dynamic_cache/evictor.h"
#include "dynamic_cache/table_block.h"

namespace lg {

struct CacheRequest {
  const int64_t* ids;
  const int64_t* positions;  // [count] distinct rows of out; nullptr for 0, 1, 2, ...
  int64_t count;
  uint8_t* out;  // num_out rows
  int64_t num_out;
};

struct CacheShape {
  int64_t num_nodes;
  int64_t num_slots;  // at most 2**28 (gather_tiered.h)
  int64_t row_bytes;
  const Eviction& eviction;

  // That a cache of this shape takes: a block for all processes.
  int64_t block_bytes() const;
};

class DynamicCache {
 public:
  // memory: block_bytes(), zero before the first process has them, at a multiple of 64; nullptr: its
  // own, which comes as slots are filled.
  explicit DynamicCache(const CacheShape& shape, uint8_t* memory = nullptr);

  // missed_ids, missed_positions: [count] each, of which the first are written, in the batch's order.
  // Returns the number of hits.
  int64_t read(const CacheRequest& batch, int64_t* missed_ids, int64_t* missed_positions);

  void admit(const CacheRequest& missed);

  int64_t visit(const int64_t* ids, int64_t count);

  // 1 where the node has a row here.
  void contains(const int64_t* ids, int64_t count, uint8_t* has);

  // Of rows and tables, when all slots are filled: what the block has beside them is a few lines.
  int64_t num_bytes() const { return block_.num_bytes(); }

 private:
  friend CacheShape;
  std::shared_lock<std::shared_mutex> to_read();
  std::unique_lock<std::shared_mutex> to_admit();

  // Of the block: whether it is as an admission leaves it, and not zero or torn.
  struct State {
    int64_t is_whole;
  };
  bool is_whole() const;
  void begin_admission();
  void end_admission();

  const int64_t num_nodes_, num_slots_, row_bytes_;
  // Whoever waits for the rows holds the turn, so that readers who come and go cannot keep an
  // admission out.
  std::mutex turn_;
  std::shared_mutex rows_in_use_;
  HugeArray<uint8_t> own_;
  TableBlock block_;
  State* state_;
  uint8_t* rows_;
  Evictor evictor_;
  std::vector<int64_t> slots_, positions_;  // of an admission
};

}  // namespace lg
