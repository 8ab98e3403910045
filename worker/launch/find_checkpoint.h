// What a training goes on from: the checkpoint of its lease, or the latest of its run directory that is whole.
// Thread-safety: functions of the file system.
#pragma once

#include "absl/status/status.h"
#include "worker/launch/prepare_training.h"

namespace legoai::launch {

// Sets what PreparedTraining and its start say of the checkpoint. Those that are found damaged are added to prepared->damaged;
// nothing is changed on the disk but a commit that was cut short, and, for a lease that says so, that one which was put aside
// gets its place again. May be called again, once those that a rank has found damaged are put aside. Errors: of a checkpoint that
// is whole and from which this training cannot go on (resume.h, another build); DataLoss where there are checkpoints and none
// loads, with each: nobody begins anew without being told to. That of a lease's carries the damage (core/checkpoint/directory.h),
// for the service chooses another.
absl::Status FindCheckpoint(const TrainRequest& request, PreparedTraining* prepared);

}  // namespace legoai::launch
