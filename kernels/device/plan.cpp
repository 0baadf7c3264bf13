#include "device/plan.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "copy_pieces/pieces.h"

namespace lg::device {
namespace {

// Asked again and again before the thread sleeps: a batch often takes less, and waking takes longer.
constexpr std::chrono::microseconds kAsking(100);

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

Plan::Plan(std::shared_ptr<const Driver> driver, uint64_t zero_bytes, uint64_t words_at,
           uint32_t num_words, std::vector<Piece> pieces)
    : driver_(std::move(driver)),
      zero_bytes_(zero_bytes),
      words_at_(words_at),
      num_words_(num_words),
      pieces_(std::move(pieces)) {}

void Plan::add(Launch launch) { launches_.push_back(std::move(launch)); }

void Plan::bind(Address scratch) {
  scratch_ = scratch;
  for (Launch& launch : launches_) {
    auto* const memory = reinterpret_cast<uint8_t*>(launch.memory.data());
    for (const Moved& moved : launch.moved) {
      const uint64_t address = scratch + moved.offset;
      std::memcpy(memory + moved.at, &address, sizeof address);
    }
  }
}

Made Plan::make(const uint64_t* fields, const std::vector<Fill>& tables,
                const std::vector<Input>& inputs, uint64_t staging, uint64_t words,
                uint64_t stream_handle) {
  const Driver& driver = *driver_;
  driver.enter();
  void* const stream = pointer(stream_handle);
  for (const Fill& table : tables) {
    driver.check(driver.memset_async(table.begin, 0xFF, table.num_bytes, stream),
                 "clearing a table of a batch");
  }
  driver.check(driver.memset_async(scratch_, 0, zero_bytes_, stream), "clearing counters of a batch");
  for (const Input& input : inputs) {
    if (input.num_bytes == 0) continue;
    std::memcpy(pointer(staging), pointer(input.from), input.num_bytes);
    const Address to = (input.is_output ? fields[kSlab] : scratch_) + input.offset;
    driver.check(driver.copy_in(to, pointer(staging), input.num_bytes, stream),
                 "copying what a batch takes along");
    staging += end_of_piece(0, input.num_bytes);
  }
  for (Launch& launch : launches_) start(launch, fields, stream);
  driver.check(driver.copy_out(pointer(words), scratch_ + words_at_, num_words_ * sizeof(uint64_t), stream),
               "copying counters of a batch");
  wait(stream);
  Made made;
  made.words.resize(num_words_);
  std::memcpy(made.words.data(), pointer(words), num_words_ * sizeof(uint64_t));
  uint64_t at = fields[kSlabBegin];
  for (const Piece& piece : pieces_) {
    made.places.push_back(at);
    at = end_of_piece(at, piece.item_bytes * (uint64_t(made.words[piece.word]) + piece.more));
  }
  made.needed_bytes = at;
  return made;
}

void Plan::copy_pieces(const uint64_t* fields, uint64_t stream) {
  driver_->enter();
  start(launches_.back(), fields, pointer(stream));
  wait(pointer(stream));
}

void Plan::start(Launch& launch, const uint64_t* fields, void* stream) const {
  auto* const memory = reinterpret_cast<uint8_t*>(launch.memory.data());
  // Little-endian, as every host of a CUDA device is: the first bytes are the least.
  for (const Patch& patch : launch.patches) {
    std::memcpy(memory + patch.at, fields + patch.field, patch.num_bytes);
  }
  std::vector<void*> parameters;
  parameters.reserve(launch.offsets.size());
  for (const uint32_t offset : launch.offsets) parameters.push_back(memory + offset);
  driver_->check(driver_->launch_kernel(pointer(launch.function), launch.blocks, 1, 1, launch.threads,
                                        1, 1, launch.shared_bytes, stream, parameters.data(),
                                        nullptr),
                 "starting a kernel of a batch");
}

void Plan::wait(void* stream) {
  const Driver& driver = *driver_;
  // Blocking: a step of training may lie before this batch, and other threads need the processor.
  if (drawn_ == nullptr) {
    driver.check(driver.event_create(&drawn_, kBlockingEvent), "making an event");
  }
  driver.check(driver.event_record(drawn_, stream), "recording the end of a batch");
  const auto end = std::chrono::steady_clock::now() + kAsking;
  do {
    const Status status = driver.event_query(drawn_);
    if (status == kSuccess) return;
    if (status != kNotReady) driver.check(status, "drawing a batch");
  } while (std::chrono::steady_clock::now() < end);
  driver.check(driver.event_synchronize(drawn_), "drawing a batch");
}

}  // namespace lg::device
