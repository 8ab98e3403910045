// What a training run keeps in checkpoints, and how the trainer saves it and goes on from it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/checkpoint.pb.h"
#include "worker/checkpoint/sharded_checkpoint.h"
#include "worker/launch/trainer_link.h"
#include "worker/train/optimizer.h"
#include "worker/train/room.h"

namespace legoai::train {

// What the launcher's verdicts do to the checkpoints on the disk.
//
// Verdicts come while the rank trains (worker/launch/pending_commits.h), and a disk may be slow: so a thread of its own puts a
// checkpoint that is committed in its place, at once, and removes one that is denied. Rank 0 does it for all; on the others
// nothing happens here. Older checkpoints are removed in Settle(), while the other ranks wait in a meeting. Not thread-safe.
class PendingSaves {
 public:
  // Of the checkpoints in the run directory of link.start(), of which the latest `keep` are kept (0: all). `link` is not owned.
  PendingSaves(launch::TrainerLink& link, int64_t keep);
  // Does what verdicts that have come say.
  ~PendingSaves();
  PendingSaves(const PendingSaves&) = delete;
  PendingSaves& operator=(const PendingSaves&) = delete;

  // Waits until all verdicts that have come are done on the disk; then, if a checkpoint was committed since the last time,
  // removes all but the latest `keep` of those that are committed. One that is pending neither counts nor goes. That an old one
  // cannot be removed does not end the training: it is told as a warning. Error: a checkpoint cannot be committed, or a denied
  // one removed.
  absl::Status Settle();

 private:
  void Work();
  absl::Status Apply(int64_t step, const absl::Status& verdict);
  void ReportAlive();

  launch::TrainerLink& link_;
  const int64_t keep_;
  const std::string root_;
  std::atomic<bool> awaited_{false};  // the rank does nothing but wait for the thread
  Mutex mutex_;
  Condition changed_;
  std::deque<std::pair<int64_t, absl::Status>> verdicts_ ABSL_GUARDED_BY(mutex_);  // the first is being worked on
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);                                   // the first
  bool committed_ ABSL_GUARDED_BY(mutex_) = false;                                 // since older ones were removed
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // on rank 0
};

// This rank's masters and optimizer state, under the names that checkpoints have: parameters by their own, what the optimizer
// keeps of them as "optimizer.<name>.<parameter>" ("optimizer.exp_avg.model.norm.weight"), the count of updates as
// "optimizer.step".
std::vector<checkpoint::ShardedTensor> CheckpointTensors(Optimizer& optimizer);

// Puts step `facts.step` into the run directory and offers it to the launcher, whose verdict may come later: `pending` then does
// what it says. However long that takes a rank, the others wait for it: all come back at the same time. Where the disk is full
// all wait until there is room (room.h; `max` is that of all ranks); false: a rank was asked to stop while they waited, and the
// step was given up. Errors: those of SaveSharded and SettleSaves.
absl::StatusOr<bool> SaveCheckpoint(launch::TrainerLink& link, const v1::CheckpointManifest& facts, Optimizer& optimizer,
                                    comm::Runtime& runtime, PendingSaves& pending, const MaxOfRanks& max);

// Does on the disk what the verdicts that have come say, while the ranks wait for each other. Errors: those of
// PendingSaves::Settle.
absl::Status SettleSaves(launch::TrainerLink& link, PendingSaves& pending);

// Fills the masters from a Hugging Face folder (recipe key model.initial_load_path). Errors: those of HfWeights.
absl::Status LoadInitialWeights(launch::TrainerLink& link, const std::string& path, Optimizer& optimizer);

// Makes the run directory's hf/ from the committed checkpoint of `step`, all at once (core/process/run_directory.h): by one rank,
// without the others. After an error an earlier hf/ is as it was.
absl::Status ExportCheckpoint(launch::TrainerLink& link, int64_t step);

// Fills the optimizer's tensors from the checkpoint that Start names; gives its manifest. An error that is the checkpoint's
// damage carries it (core/checkpoint/directory.h), here and in ExportCheckpoint.
absl::StatusOr<v1::CheckpointManifest> LoadCheckpoint(launch::TrainerLink& link, Optimizer& optimizer);

}  // namespace legoai::train
