// Work on several cores at once as the ranks of a trainer do it: a process for each, pinned to a core of its own, with one
// thread.
//
// Torch in the children is limited to one thread. Must be called from a process of one thread (it forks). Blocking; the children
// die with the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"

namespace legoai::sim {

using CoreWork = std::function<absl::StatusOr<std::vector<double>>(int64_t core)>;

// What `work` gave on each core, in their order. Errors: the first that a core gave; Internal for a process that died.
absl::StatusOr<std::vector<std::vector<double>>> RunOnCores(int64_t cores, const CoreWork& work);

}  // namespace legoai::sim
