// sampling.h: what the targets of all samplers have in common: requests, good and bad, arenas that
// grow, and where arrays lie in them (common/batch.h).
#pragma once

#include <functional>
#include <optional>

#include "common/batch.h"
#include "fuzz/graphs.h"
#include "fuzz/target.h"

namespace lg::fuzz {

// One in twenty is too small, mostly.
Workspace random_workspace(Choices& choose, int64_t num_nodes);

// Distinct nodes; in one of eight cases, perhaps one that repeats or is none.
Exact<int64_t> random_seeds(Choices& choose, int64_t num_nodes);

// All but the arena. The seeds must outlive it.
BatchRequest random_batch_request(Choices& choose, const Exact<int64_t>& seeds);

// The only right outcome of a request that is bad in itself; none if it is sound.
std::optional<Outcome> refusal(const Workspace& workspace, const BatchRequest& request,
                               int64_t num_nodes);

struct Sampled {
  SampleLayout layout;
  Arena arena;
  int64_t arena_bytes;
};

using Sample = std::function<SampleLayout(const BatchRequest&)>;

// Calls a kernel as the owner of an arena does: with larger ones until the batch fits.
Sampled sample_into_arenas(BatchRequest request, int64_t arena_bytes, const Sample& sample);

// All arrays are aligned, inside the arena, and clear of each other.
void expect_sound_places(const Sampled& sampled);

}  // namespace lg::fuzz
