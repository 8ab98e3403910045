// The communication of a rank that is alone, so that its step can be timed here: the other ranks are copies of it, and what would
// run on a side stream runs at once, where it is dispatched, which is after whatever it waits for.
//
// A collective takes the time of copying its bytes; what it really takes is predicted elsewhere (simulator/cost).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/mesh/mesh.h"
#include "worker/comm/runtime.h"

namespace legoai::sim {

// `groups`: those of `rank`.
absl::StatusOr<std::unique_ptr<comm::Runtime>> MakeLoneRuntime(int64_t rank, const std::vector<mesh::Group>& groups);

}  // namespace legoai::sim
