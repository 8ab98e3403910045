// Waits in place for room on a full disk: the ranks keep their state, and the launcher is told what they wait for. Torch-free.
// Used from the training thread.
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
  // Called before each retry, while the other ranks wait for this one: it may free room. Empty: nothing to do.
  std::function<absl::Status()> make = nullptr;
};

// Ranks that wait together: `max` returns the maximum over all, as Machine::Max. Empty: this rank waits alone.
using MaxOfRanks = std::function<absl::StatusOr<int64_t>(int64_t)>;

// Runs `work` and retries it while it fails for lack of room (ResourceExhausted): after a second, and with growing delays if the
// disk reports room but the work finds none, as with a quota. On ranks that wait together `work` must fail or succeed alike.
// True: it is done. False: a rank was asked to stop meanwhile. Errors: other errors of `work`, and the link's.
absl::StatusOr<bool> DoWhenThereIsRoom(launch::TrainerLink& link, const RoomFor& room, const MaxOfRanks& max,
                                       const std::function<absl::Status()>& work);

}  // namespace legoai::train
