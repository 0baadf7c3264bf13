// location.h: what a location of a cached row is made of, for CPU and CUDA.
#pragma once

namespace lg {

constexpr int kSlotBits = 28;  // the lower ones; above them is the shard
constexpr int kMaxShards = 8;

}  // namespace lg
