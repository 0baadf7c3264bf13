// plan.h: a mini-batch as the driver calls that make it: recorded once from Python's (ops/cuda/
// recorder.py), and made again without Python by changing the few numbers that differ.
//
// Memory that the batch itself allocated is one block of scratch here, at fixed places; addresses of
// anything else are those that were recorded, and whoever makes the plan keeps what they lead to.
// Outputs are copied from scratch to a slab of exactly their size by the last launch (copy_pieces/),
// which reads on the device how much there is: so the host waits once.
#pragma once

#include <cstdint>
#include <vector>

#include "device/driver.h"

namespace lg::device {

// The numbers that differ from batch to batch; ops/cuda/sampling/varying.py names them in this order.
enum Field : uint32_t {
  kSeed,
  kEpoch,
  kStep,
  kNumSeeds,
  kNumExcluded,
  kBatch,
  kPathsBatch,
  kSlab,
  kSlabBegin,
  kSlabEnd,
  kNumFields
};

struct Patch {
  uint32_t at;  // in the launch's memory
  uint32_t field;
  uint32_t num_bytes;
};

struct Moved {
  uint32_t at;      // of a pointer in the launch's memory
  uint64_t offset;  // in scratch, of what it leads to
};

struct Launch {
  Function function;
  uint32_t blocks, threads, shared_bytes;
  std::vector<uint64_t> memory;   // the parameters, as words for their alignment
  std::vector<uint32_t> offsets;  // of each parameter
  std::vector<Patch> patches;
  std::vector<Moved> moved;
};

// A range whose bits are set.
struct Fill {
  Address begin;
  uint64_t num_bytes;
};

// A part of the output: item_bytes * (words[word] + more) bytes.
struct Piece {
  uint64_t item_bytes;
  uint32_t word;
  uint32_t more;
};

// Memory of the host that a batch takes along.
struct Input {
  const void* from;
  uint64_t num_bytes;
  bool is_output;  // where it goes: `offset` of the slab, or of scratch
  uint64_t offset;
};

struct Made {
  std::vector<int64_t> words;
  std::vector<uint64_t> places;  // of each piece in the slab
  uint64_t needed_bytes;         // of the slab; more than it has: its pieces are not there
};

// For one thread at a time, in one stream at a time.
class Plan {
 public:
  Plan(const Driver& driver, uint64_t zero_bytes, uint64_t words_at, uint32_t num_words,
       std::vector<Piece> pieces);

  void add(Launch launch);

  // Writes the addresses of everything in scratch.
  void bind(Address scratch);

  // Makes a batch, and waits for it. `tables` get all bits set first. `staging` and `words` are
  // page-locked memory of the host: room for the inputs, each at a multiple of 256 bytes, and for the
  // words.
  Made make(const uint64_t* fields, const std::vector<Fill>& tables,
            const std::vector<Input>& inputs, uint8_t* staging, int64_t* words, Stream stream);

  // Copies the pieces of the batch that was made last to another slab, and waits.
  void copy_pieces(const uint64_t* fields, Stream stream);

 private:
  void start(Launch& launch, const uint64_t* fields, Stream stream) const;
  void wait(Stream stream);

  const Driver& driver_;
  uint64_t zero_bytes_, words_at_;
  uint32_t num_words_;
  std::vector<Piece> pieces_;
  std::vector<Launch> launches_;
  Address scratch_ = 0;
  Event drawn_ = nullptr;  // which the driver frees with the process
};

}  // namespace lg::device
