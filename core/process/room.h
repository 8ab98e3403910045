// A disk that is full, where a training writes: what is said of it, and waiting until there is room. Thread-safety:
// pure functions, and one that blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace legoai::launch {

// "the disk of RUNS is full: 12 MiB are free of the 340 MiB that a checkpoint takes"; where `bytes` are free, or it is not known
// how many are needed (0): with what was tried (`full`) instead.
std::string WaitsForRoom(const std::string& what, const std::string& path, int64_t bytes, int64_t free, const absl::Status& full);

// Does `work`, and again as long as it fails for want of room (ResourceExhausted), after a second and then after longer and
// longer. `waits` hears of each wait why, and in the end of an empty text where there was one. `stop` is asked several times a
// second; then the error is the work's.
absl::Status DoWhenThereIsRoom(const std::function<absl::Status()>& work, const std::function<void(const std::string&)>& waits,
                               const std::function<bool()>& stop);

}  // namespace legoai::launch
