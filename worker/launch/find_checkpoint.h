// What a training goes on from: the checkpoint of its lease, or the latest of its run directory that is whole. Torch-free.
// Thread-safety: functions of the file system.
#pragma once

#include "absl/status/status.h"
#include "worker/launch/prepare_training.h"

namespace legoai::launch {

// Sets what PreparedTraining and its start say of the checkpoint. Those in prepared->damaged are passed over, and those that are
// found damaged are added to it; nothing is changed on the disk but a commit that was cut short. May be called again, once a rank
// has found out more (prepared->damaged).
// Errors: of a checkpoint that is whole and from which this training cannot go on (resume.h, another build); DataLoss where there
// are checkpoints and none loads, with each: nobody begins anew without being told to. That of a lease's carries the damage
// (worker/checkpoint/damage.h), for the service chooses another.
absl::Status FindCheckpoint(const TrainRequest& request, PreparedTraining* prepared);

}  // namespace legoai::launch
