#include "device/plan.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "copy_pieces/pieces.h"

namespace lg::device {
namespace {

// Asked again and again before the thread sleeps: a batch often takes less, and waking takes longer.
constexpr std::chrono::microseconds kAsking(100);

}  // namespace

Plan::Plan(const Driver& driver, uint64_t zero_bytes, uint64_t words_at, uint32_t num_words,
           std::vector<Piece> pieces)
    : driver_(driver),
      zero_bytes_(zero_bytes),
      words_at_(words_at),
      num_words_(num_words),
      pieces_(std::move(pieces)) {}

void Plan::add(Launch launch) {
  const ContextScope scope = driver_.enter();
  driver_.allow_shared(launch.function, launch.shared_bytes);
  launches_.push_back(std::move(launch));
}

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
                const std::vector<Input>& inputs, uint8_t* staging, int64_t* words, Stream stream) {
  const ContextScope scope = driver_.enter();
  for (const Fill& table : tables) {
    driver_.check(driver_.memset_async(table.begin, 0xFF, table.num_bytes, stream),
                  "clear a table of a batch");
  }
  driver_.check(driver_.memset_async(scratch_, 0, zero_bytes_, stream),
                "clear the counters of a batch");
  for (const Input& input : inputs) {
    if (input.num_bytes == 0) continue;
    std::memcpy(staging, input.from, input.num_bytes);
    const Address to = (input.is_output ? fields[kSlab] : scratch_) + input.offset;
    driver_.check(driver_.copy_in(to, staging, input.num_bytes, stream),
                  "copy what a batch takes along");
    staging += end_of_piece(0, input.num_bytes);
  }
  for (Launch& launch : launches_) start(launch, fields, stream);
  driver_.check(
      driver_.copy_out(words, scratch_ + words_at_, num_words_ * sizeof(uint64_t), stream),
      "copy the counters of a batch");
  wait(stream);
  Made made;
  made.words.resize(num_words_);
  std::memcpy(made.words.data(), words, num_words_ * sizeof(uint64_t));
  uint64_t at = fields[kSlabBegin];
  for (const Piece& piece : pieces_) {
    made.places.push_back(at);
    at = end_of_piece(at, piece.item_bytes * (uint64_t(made.words[piece.word]) + piece.more));
  }
  made.needed_bytes = at;
  return made;
}

void Plan::copy_pieces(const uint64_t* fields, Stream stream) {
  const ContextScope scope = driver_.enter();
  start(launches_.back(), fields, stream);
  wait(stream);
}

void Plan::start(Launch& launch, const uint64_t* fields, Stream stream) const {
  auto* const memory = reinterpret_cast<uint8_t*>(launch.memory.data());
  // Little-endian, as every host of a CUDA device is: the first bytes are the least.
  for (const Patch& patch : launch.patches) {
    std::memcpy(memory + patch.at, fields + patch.field, patch.num_bytes);
  }
  std::vector<void*> parameters;
  parameters.reserve(launch.offsets.size());
  for (const uint32_t offset : launch.offsets) parameters.push_back(memory + offset);
  driver_.check(driver_.launch_kernel(launch.function, launch.blocks, 1, 1, launch.threads, 1, 1,
                                      launch.shared_bytes, stream, parameters.data(), nullptr),
                "start a kernel of a batch");
}

void Plan::wait(Stream stream) {
  // Blocking: a step of training may lie before this batch, and other threads need the processor.
  if (drawn_ == nullptr) {
    driver_.check(driver_.event_create(&drawn_, kBlockingEvent | kUntimedEvent), "make an event");
  }
  driver_.check(driver_.event_record(drawn_, stream), "mark the end of a batch");
  const auto end = std::chrono::steady_clock::now() + kAsking;
  do {
    const Status status = driver_.event_query(drawn_);
    if (status == kSuccess) return;
    if (status != kNotReady) driver_.check(status, "draw a batch");
  } while (std::chrono::steady_clock::now() < end);
  driver_.check(driver_.event_synchronize(drawn_), "draw a batch");
}

}  // namespace lg::device
