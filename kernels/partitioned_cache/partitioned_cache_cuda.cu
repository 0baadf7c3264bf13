// partitioned_cache_cuda.cu: a first-in-first-out cache that several devices hold together. Rank r of R
// has slots for the nodes whose id is r modulo R, and the others read them in place.
//
// Each rank writes to its own memory alone, and no lock is taken. What must not be read in halves is
// protected by turns instead. A rank is inside from enter() to leave(), and its turn is odd meanwhile.
// When it has found its own rows, it clears as many slots as it expects to need, so that whoever enters
// from then on cannot find them; they are written when the batch is gathered, if every rank that was
// inside at the clearing has left since. The outbox, in which a rank lays the rows that it has missed
// for their owners, is withdrawn and filled again by the same rule.
// Where a rank stays inside, nothing is admitted: waiting changes what is cached, never a row.
//
// A batch is enter(), locate(), clear_next(), gather_tiered() by the locations, post(), claim(),
// list_incoming(), admit() and leave(). If it fails after enter(), leave() alone has to follow.
// Source: BGL (NSDI'23), section 3.2.3, which queues the operations for a thread of each device instead;
// McKenney and Slingwine, "Read-copy update", 1998, whose grace period is that of a slot here.
#include "common/cuda/kernel.h"
#include "common/cuda/move_rows.h"
#include "common/cuda/scan.h"
#include "gather_tiered/location.h"

namespace lg {

constexpr int32_t kFirstClaim = int32_t(0x80000000u);  // of the first candidate; others follow
constexpr int kMaxRanks = kMaxShards;
constexpr int kSentBits =
    32;  // of a `sent` word: how many rows; above them: how often it was filled

// What begins the memory of each rank, 256 bytes, of which others read these.
struct Header {
  volatile Word turn;  // odd: its rank is inside
  volatile Word sent;  // of the outbox
};

// What a rank alone knows, zero at first but `cleared` and `free`: num_slots (ops/cuda/tables/partitioned_cache.py).
struct Progress {
  Word given;             // admissions so far: the next is to slot given % num_slots
  Word cleared;           // slots up to this one are cleared, counted like `given`
  Word free;              // slots up to this one may be written
  Word wanted;            // slots that the last batch could have used
  Word admitted;          // in this batch
  Word passed;            // whether ranks that were inside have left: 0: not asked yet, kYes or kNo
  Word filled;            // times that the outbox was filled
  Word blocks;            // that have cleared their part
  Word turns[kMaxRanks];  // of the others, at the clearing
  Word counts[kMaxRanks];  // rows in the outboxes that it has not looked at before
  Word seen[kMaxRanks];    // `sent` of the outboxes that it has looked at
};
constexpr Word kYes = 1, kNo = 2;

// What Python's PartitionedSlots (ops/cuda/tables/partitioned_cache.py) keeps.
struct Group {
  const int64_t* memories;  // [num_ranks]: addresses of the ranks' memory
  int32_t num_ranks;
  int32_t rank;
  int64_t num_nodes;
  int64_t num_slots;   // of each rank
  int64_t num_places;  // of each outbox; as many are admitted and cleared at a time
  int64_t
      slots_at;  // in bytes from where a memory begins: int32 [nodes of the rank], negative: no slot
  int64_t ids_at;        // int64 [num_places] of the outbox
  int64_t sent_rows_at;  // [num_places] rows of the outbox
  int64_t rows_at;       // [num_slots]
  int64_t* node_of;      // [num_slots] of this rank: the node that has a slot; negative: nobody
  Word* progress;
  int32_t* location;  // [num_nodes]: where the rows of the last batch's nodes are
};

// Who is admitted, each once, and where its row lies.
struct Incoming {
  int64_t* ids;      // [num_places], of which the first are written
  int64_t* sources;  // likewise: addresses
};

__device__ inline uint8_t* memory_of(const Group& group, int rank) {
  return reinterpret_cast<uint8_t*>(group.memories[rank]);
}
__device__ inline Header* header_of(const Group& group, int rank) {
  return reinterpret_cast<Header*>(memory_of(group, rank));
}
__device__ inline volatile int32_t* slots_of(const Group& group, int rank) {
  return reinterpret_cast<volatile int32_t*>(memory_of(group, rank) + group.slots_at);
}
__device__ inline Progress* progress_of(const Group& group) {
  return reinterpret_cast<Progress*>(group.progress);
}

// Candidates of a batch, one after the other: of this rank's outbox, then of those after it.
struct Candidates {
  int64_t begin[kMaxRanks + 1];
};

__device__ inline Candidates candidates_of(const Group& group) {
  Candidates all;
  all.begin[0] = 0;
  for (int turn = 0; turn < kMaxRanks; ++turn) {
    const int rank = (group.rank + turn) % group.num_ranks;
    const int64_t count = turn < group.num_ranks ? int64_t(progress_of(group)->counts[rank]) : 0;
    all.begin[turn + 1] = all.begin[turn] + count;
  }
  return all;
}

struct Candidate {
  int64_t id;  // negative: none of this rank's
  int64_t source;
};

__device__ inline Candidate candidate(const Group& group, const Candidates& all, int64_t number,
                                      int64_t row_bytes) {
  int turn = 0;
  while (number >= all.begin[turn + 1]) ++turn;
  const int64_t place = number - all.begin[turn];
  const uint8_t* const memory = memory_of(group, (group.rank + turn) % group.num_ranks);
  const int64_t id = *reinterpret_cast<volatile const int64_t*>(memory + group.ids_at + place * 8);
  const bool is_own =
      uint64_t(id) < uint64_t(group.num_nodes) && id % group.num_ranks == group.rank;
  return {is_own ? id : -1, int64_t(memory + group.sent_rows_at + place * row_bytes)};
}

// Clears this rank's slots and outbox, before others may open its memory.
__global__ void clear_slots(Group group) {
  const int64_t num_nodes = (group.num_nodes + group.num_ranks - 1) / group.num_ranks;
  for (int64_t i = thread_of_grid(); i < num_nodes; i += threads_of_grid()) {
    slots_of(group, group.rank)[i] = -1;
  }
  for (int64_t i = thread_of_grid(); i < group.num_slots; i += threads_of_grid()) {
    group.node_of[i] = -1;
  }
  if (thread_of_grid() == 0) {
    header_of(group, group.rank)->turn = 0;
    header_of(group, group.rank)->sent = 0;
    progress_of(group)->cleared = progress_of(group)->free = Word(group.num_slots);
  }
}

// Begins this rank's turn: by one warp.
__global__ void enter(Group group) {
  Progress* const progress = progress_of(group);
  Header* const own = header_of(group, group.rank);
  if (threadIdx.x == 0) {
    own->turn = own->turn + 1;
    own->sent = progress->filled << kSentBits;  // withdrawn
    progress->passed = progress->admitted = 0;
    progress->blocks = 0;
    progress->counts[group.rank] = 0;
  }
  __threadfence_system();  // the turn comes before all that is read in it
  __syncwarp();
  const int rank = int(threadIdx.x);
  if (rank < group.num_ranks && rank != group.rank) {
    const Word sent = header_of(group, rank)->sent;
    const Word count = sent & ((Word(1) << kSentBits) - 1), places = Word(group.num_places);
    const bool is_new = count > 0 && sent != progress->seen[rank];
    // Bounded, as another process has written it.
    progress->counts[rank] = !is_new ? 0 : count < places ? count : places;
    if (is_new) progress->seen[rank] = sent;
  }
  __threadfence_system();
}

//   out  location[id] of each of ids[count] that is a node: shard << 28 | slot; negative: in no cache
__global__ void locate(Group group, const int64_t* ids, int64_t count) {
  for (int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    const int64_t id = ids[i];
    if (uint64_t(id) >= uint64_t(group.num_nodes)) continue;
    const int owner = int(id % group.num_ranks);
    const int32_t slot = slots_of(group, owner)[id / group.num_ranks];
    group.location[id] = slot < 0 ? -1 : int32_t(uint32_t(owner) << kSlotBits | uint32_t(slot));
  }
  __threadfence_system();  // the rows of slots that were found are there for the next kernel
}

// Clears as many slots as the last batch could have used, unless they are. Then looks who is inside.
__global__ void clear_next(Group group) {
  Progress* const progress = progress_of(group);
  volatile int32_t* const slots = slots_of(group, group.rank);
  const Word cleared = progress->cleared, end = progress->given + progress->wanted;
  for (int64_t turn = int64_t(cleared) + thread_of_grid(); turn < int64_t(end);
       turn += threads_of_grid()) {
    int64_t* const node = group.node_of + turn % group.num_slots;
    if (*node >= 0) slots[*node / group.num_ranks] = -1;
    *node = -1;
  }
  __threadfence_system();
  __syncthreads();
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    is_last = atomicAdd(&progress->blocks, Word(1)) == Word(gridDim.x) - 1;
    // Whoever is seen outside below will see what all blocks have cleared, and the outbox withdrawn: either
    // its turn comes before this fence for all, or this fence before its turn.
    __threadfence_system();
  }
  __syncthreads();
  if (!is_last) return;
  if (threadIdx.x == 0 && end > cleared) progress->cleared = end;
  const int rank = int(threadIdx.x);
  if (rank < group.num_ranks && rank != group.rank) {
    progress->turns[rank] = header_of(group, rank)->turn;
  }
}

// Whether all ranks that were inside at the clearing have left since; the same in all blocks.
__device__ inline bool block_has_passed(const Group& group) {
  Progress* const progress = progress_of(group);
  const int rank = int(threadIdx.x);
  bool is_inside = false;
  if (rank < group.num_ranks && rank != group.rank) {
    const Word before = progress->turns[rank];
    is_inside = before % 2 == 1 && header_of(group, rank)->turn == before;
  }
  const bool passed = __syncthreads_or(is_inside) == 0;
  __shared__ bool answer;
  if (threadIdx.x == 0) {
    // What others read before they left comes before this, and this before what is written now.
    __threadfence_system();
    // The first block's answer holds: whoever has left stays so, and all have to do the same.
    const Word first = atomicCAS(&progress->passed, Word(0), passed ? kYes : kNo);
    answer = first == 0 ? passed : first == kYes;
    __threadfence_system();
  }
  __syncthreads();
  return answer;
}

//   in   missed_ids, missed_positions  *num_missed each: what the batch has missed
//   in   batch                         its rows, by position
//   out  this rank's outbox, if all have passed: as many as it has places for, from all over the batch,
//        as its first nodes are its seeds, which nobody asks for again soon
template <class Vector>
__global__ void __launch_bounds__(kMoveThreads)
    post(Group group, const int64_t* missed_ids, const int64_t* missed_positions,
         const int64_t* num_missed, const uint8_t* batch, MoveShape shape) {
  const bool passed = block_has_passed(group);
  const int64_t row_bytes = int64_t(shape.row_vectors) * int64_t(sizeof(Vector));
  const int64_t missed = *num_missed, places = group.num_places;
  const int64_t count = !passed ? 0 : missed < places ? missed : places;
  uint8_t* const memory = memory_of(group, group.rank);
  if (thread_of_grid() == 0) progress_of(group)->counts[group.rank] = Word(count);
  const auto take = [&](int64_t m) {
    RowMove move{nullptr, nullptr};
    if (m >= 0) {
      const int64_t from = m * missed / count;
      *reinterpret_cast<int64_t*>(memory + group.ids_at + m * 8) = missed_ids[from];
      move = {batch + missed_positions[from] * row_bytes,
              memory + group.sent_rows_at + m * row_bytes};
    }
    move_rows<Vector>(move, shape.row_vectors);
  };
  for_each_of_warp(count, thread_of_grid() / 32, threads_of_grid() / 32, shape.rows_a_warp, take);
}

//   out  slots of this rank   of a node without one: the claim of the first candidate that names it
__global__ void claim(Group group) {
  const Candidates all = candidates_of(group);
  for (int64_t i = thread_of_grid(); i < all.begin[kMaxRanks]; i += threads_of_grid()) {
    const int64_t id = candidate(group, all, i, 0).id;
    if (id < 0) continue;
    int32_t* const slot = const_cast<int32_t*>(slots_of(group, group.rank)) + id / group.num_ranks;
    if (*static_cast<volatile int32_t*>(slot) < 0) atomicMin(slot, kFirstClaim + int32_t(i));
  }
}

//   out  incoming, progress.admitted: in the order of the candidates, as many as slots are free
//   out  slots of this rank           negative again, of those that are not admitted
//   tmp  words[1 + tiles]             zero, tiles for num_ranks * num_places
__global__ void __launch_bounds__(kScanThreads)
    list_incoming(Group group, int64_t row_bytes, Incoming incoming, Word* words) {
  Progress* const progress = progress_of(group);
  const Candidates all = candidates_of(group);
  const int64_t count = all.begin[kMaxRanks];
  const Word end = progress->passed == kYes ? progress->cleared : progress->free;
  const int64_t free = int64_t(end - progress->given);
  const int64_t most = free < group.num_places ? free : group.num_places;
  TileScan scan(words);
  for (int64_t tile = scan.next_tile(); tile == 0 || tile * kScanThreads < count;
       tile = scan.next_tile()) {
    const int64_t i = tile * kScanThreads + int64_t(threadIdx.x);
    const Candidate taken = i < count ? candidate(group, all, i, row_bytes) : Candidate{-1, 0};
    volatile int32_t* const slot =
        slots_of(group, group.rank) + (taken.id < 0 ? 0 : taken.id / group.num_ranks);
    const bool is_first = taken.id >= 0 && *slot == kFirstClaim + int32_t(i);
    const BlockSum sum = block_sum(is_first);
    const int64_t before = scan.before(tile, sum.total);
    const int64_t number = before + sum.before;
    if (is_first && number < most) {
      incoming.ids[number] = taken.id;
      incoming.sources[number] = taken.source;
    } else if (is_first) {
      *slot = -1;
    }
    if ((tile + 1) * kScanThreads >= count && threadIdx.x == 0) {
      const int64_t admitted = before + sum.total;
      progress->admitted = Word(admitted < most ? admitted : most);
      progress->wanted = Word(admitted < group.num_places ? admitted : group.num_places);
    }
  }
}

//   out  rows and slots of this rank, node_of
template <class Vector>
__global__ void __launch_bounds__(kMoveThreads)
    admit(Group group, Incoming incoming, MoveShape shape) {
  const Progress* const progress = progress_of(group);
  const int64_t row_bytes = int64_t(shape.row_vectors) * int64_t(sizeof(Vector));
  const int64_t num_slots = group.num_slots, given = int64_t(progress->given);
  const int64_t count = int64_t(progress->admitted);
  uint8_t* const rows = memory_of(group, group.rank) + group.rows_at;
  volatile int32_t* const slots = slots_of(group, group.rank);
  const auto take = [&](int64_t m) {
    const int64_t slot = (given + m) % num_slots;
    RowMove move{nullptr, nullptr};
    if (m >= 0) {
      move = {reinterpret_cast<const uint8_t*>(incoming.sources[m]), rows + slot * row_bytes};
    }
    move_rows<Vector>(move, shape.row_vectors);
    __threadfence_system();  // each lane has moved parts of the rows: they come before the slots
    __syncwarp();
    if (m >= 0) {
      group.node_of[slot] = incoming.ids[m];
      slots[incoming.ids[m] / group.num_ranks] = int32_t(slot);
    }
  };
  for_each_of_warp(count, thread_of_grid() / 32, threads_of_grid() / 32, shape.rows_a_warp, take);
}

// Ends this rank's turn, and shows its outbox: by one thread.
__global__ void leave(Group group) {
  if (threadIdx.x != 0) return;
  Progress* const progress = progress_of(group);
  Header* const own = header_of(group, group.rank);
  const bool passed = progress->passed == kYes;
  if (passed) progress->free = progress->cleared;
  progress->given += progress->admitted;
  __threadfence_system();  // the outbox's rows come before its word, and all that was read before the turn ends
  if (passed) own->sent = ++progress->filled << kSentBits | progress->counts[group.rank];
  __threadfence_system();
  own->turn = own->turn + 1;
}

}  // namespace lg

LG_INSTANTIATE(clear_slots)
LG_INSTANTIATE(clear_next)
LG_INSTANTIATE(enter)
LG_INSTANTIATE(locate)
LG_INSTANTIATE(post<uint4>)
LG_INSTANTIATE(post<uint2>)
LG_INSTANTIATE(post<uint32_t>)
LG_INSTANTIATE(post<uint16_t>)
LG_INSTANTIATE(post<uint8_t>)
LG_INSTANTIATE(claim)
LG_INSTANTIATE(list_incoming)
LG_INSTANTIATE(admit<uint4>)
LG_INSTANTIATE(admit<uint2>)
LG_INSTANTIATE(admit<uint32_t>)
LG_INSTANTIATE(admit<uint16_t>)
LG_INSTANTIATE(admit<uint8_t>)
LG_INSTANTIATE(leave)
