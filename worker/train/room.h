// Waiting for room on a disk that is full, in place: the ranks keep their state, and the launcher hears what they wait for.
// Torch-free. Used from the thread of the training.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/launch/trainer_link.h"

namespace legoai::train {

// What is written, and where.
struct RoomFor {
  std::string what;   // "a checkpoint"
  std::string path;   // on the disk
  int64_t bytes = 0;  // of all ranks; 0: not known
  // Called at each look, while the others wait for this rank: what it removes may be room enough. Empty: there is nothing to do.
  std::function<absl::Status()> make = nullptr;
};

// Ranks that wait together: `max` gives the largest value of all, as Machine::Max. Empty: this rank waits alone.
using MaxOfRanks = std::function<absl::StatusOr<int64_t>(int64_t)>;

// Does `work`, and again as long as it fails for want of room (ResourceExhausted): after a second, and after longer and longer
// ones where the disk says that there is room and the work finds none, as with a quota. Ranks that wait together have to get the
// same kind of answer from `work`. True: it is done. False: a rank was asked to stop meanwhile. Errors: the work's others, the
// link's.
absl::StatusOr<bool> DoWhenThereIsRoom(launch::TrainerLink& link, const RoomFor& room, const MaxOfRanks& max,
                                       const std::function<absl::Status()>& work);

}  // namespace legoai::train
