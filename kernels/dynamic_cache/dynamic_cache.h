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
// Ids and positions are checked before anything is read, written or counted: SeedError.
#pragma once

#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "common/huge_array.h"
#include "dynamic_cache/evictor.h"

namespace lg {

struct CacheRequest {
  const int64_t* ids;
  const int64_t* positions;  // [count] distinct rows of out; nullptr for 0, 1, 2, ...
  int64_t count;
  uint8_t* out;  // num_out rows
  int64_t num_out;
};

class DynamicCache {
 public:
  // num_slots: at most 2**28 (gather_tiered.h). Memory comes as slots are filled.
  DynamicCache(int64_t num_nodes, int64_t num_slots, int64_t row_bytes, const Eviction& eviction);

  // missed_ids, missed_positions: [count] each, of which the first are written, in the batch's order.
  // Returns the number of hits.
  int64_t read(const CacheRequest& batch, int64_t* missed_ids, int64_t* missed_positions);

  void admit(const CacheRequest& missed);

  int64_t visit(const int64_t* ids, int64_t count);

  // 1 where the node has a row here.
  void contains(const int64_t* ids, int64_t count, uint8_t* has);

  // Of rows and tables, when all slots are filled.
  int64_t num_bytes() const;

 private:
  std::shared_lock<std::shared_mutex> to_read();
  std::unique_lock<std::shared_mutex> to_admit();

  const int64_t num_nodes_, num_slots_, row_bytes_;
  // Whoever waits for the rows holds the turn, so that readers who come and go cannot keep an
  // admission out.
  std::mutex turn_;
  std::shared_mutex rows_in_use_;
  Evictor evictor_;
  HugeArray<uint8_t> rows_;
  std::vector<int64_t> slots_, positions_;  // of an admission
};

}  // namespace lg
