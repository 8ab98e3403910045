// What a training run keeps in checkpoints, and how the trainer saves it and goes on from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/checkpoint.pb.h"
#include "worker/checkpoint/sharded_checkpoint.h"
#include "worker/launch/trainer_link.h"
#include "worker/train/optimizer.h"
#include "worker/train/room.h"

namespace legoai::train {

// This rank's masters and optimizer state, under the names that checkpoints have: parameters by their own, moments as
// "optimizer.exp_avg.<parameter>" and "optimizer.exp_avg_sq.<parameter>", the count of updates as "optimizer.step".
std::vector<checkpoint::ShardedTensor> CheckpointTensors(AdamW& optimizer);

// Saves step `facts.step` of the run directory if the launcher commits it, and removes all but the latest `keep` checkpoints.
// However long that takes a rank, the others wait for it: all come back at the same time.
// Where the disk is full all wait until there is room (room.h; `max` is that of all ranks). Denied, and given up because a rank
// was asked to stop while they waited, the launcher is told as a warning. Errors: those of SaveSharded.
enum class Saved { kCommitted, kDenied, kGivenUp };
absl::StatusOr<Saved> SaveCheckpoint(launch::TrainerLink& link, const v1::CheckpointManifest& facts, AdamW& optimizer,
                                     comm::Runtime& runtime, int64_t keep, const MaxOfRanks& max);

// Fills the masters from a Hugging Face folder (recipe key model.initial_load_path). Errors: those of HfWeights.
absl::Status LoadInitialWeights(launch::TrainerLink& link, const std::string& path, AdamW& optimizer);

// Makes the run directory's hf/ from the committed checkpoint of `step`, all at once (worker/launch/export_mark.h): by one rank,
// without the others. After an error an earlier hf/ is as it was.
absl::Status ExportCheckpoint(launch::TrainerLink& link, int64_t step);

// Fills the optimizer's tensors from the checkpoint that Start names; gives its manifest. An error that is the checkpoint's
// damage carries it (worker/checkpoint/damage.h), here and in ExportCheckpoint.
absl::StatusOr<v1::CheckpointManifest> LoadCheckpoint(launch::TrainerLink& link, AdamW& optimizer);

}  // namespace legoai::train
