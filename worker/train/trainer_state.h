// What a training run keeps in checkpoints, and how the trainer saves it and resumes from it.
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

// Applies the launcher's verdicts to the checkpoints on disk.
//
// Verdicts arrive while the rank trains (worker/launch/pending_commits.h), and a disk may be slow, so a separate thread commits
// or removes each checkpoint at once. Rank 0 does this for all; other ranks do nothing here. Older checkpoints are removed in
// Settle(), while the other ranks wait in Meet(). Not thread-safe.
class PendingSaves {
 public:
  // For the checkpoints in the run directory of link.start(), of which the latest `keep` are kept (0: all). `link` is not owned.
  PendingSaves(launch::TrainerLink& link, int64_t keep);
  // Applies the verdicts that have arrived.
  ~PendingSaves();
  PendingSaves(const PendingSaves&) = delete;
  PendingSaves& operator=(const PendingSaves&) = delete;

  // Waits until all verdicts that have arrived are applied on disk; then, if a checkpoint was committed since the last call,
  // removes all but the latest `keep` committed ones. Pending checkpoints are neither counted nor removed. Failing to remove an
  // old one is only a warning. Error: a checkpoint cannot be committed, or a denied one cannot be removed.
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

// This rank's masters and optimizer state under their checkpoint names: Optimizer::masters() by their parameters', its state as
// "optimizer.<name>.<parameter>" ("optimizer.exp_avg.model.norm.weight"), Optimizer::Counters() by their names. Parameters beside
// masters are not saved: they are these, rounded.
std::vector<checkpoint::ShardedTensor> CheckpointTensors(Optimizer& optimizer);

// Fills all of these, and parameters beside masters. Errors: those of LoadSharded.
absl::Status LoadTensors(checkpoint::CheckpointReader& reader, Optimizer& optimizer);

// Writes step `facts.step` into the run directory and offers it to the launcher, whose verdict may come later and is applied by
// `pending`. All ranks wait for the slowest and return together. If the disk is full, all wait for room (room.h; `max` is over
// all ranks); false: a rank was asked to stop meanwhile, and the save was abandoned. Errors: those of SaveSharded and
// SettleSaves.
absl::StatusOr<bool> SaveCheckpoint(launch::TrainerLink& link, const v1::CheckpointManifest& facts, Optimizer& optimizer,
                                    comm::Runtime& runtime, PendingSaves& pending, const MaxOfRanks& max);

// Settles `pending` while the ranks wait for each other. Errors: those of PendingSaves::Settle.
absl::Status SettleSaves(launch::TrainerLink& link, PendingSaves& pending);

// Fills the masters from a Hugging Face folder (recipe key model.initial_load_path). Errors: those of HfWeights.
absl::Status LoadInitialWeights(launch::TrainerLink& link, const std::string& path, Optimizer& optimizer);

// Atomically creates the run directory's hf/ from the committed checkpoint of `step` (core/process/run_directory.h). One rank
// does it alone. After an error an earlier hf/ is unchanged.
absl::Status ExportCheckpoint(launch::TrainerLink& link, int64_t step);

// Fills the optimizer's tensors from the checkpoint that Start names and returns its manifest. Errors due to damage carry it
// (core/checkpoint/directory.h), here and in ExportCheckpoint.
absl::StatusOr<v1::CheckpointManifest> LoadCheckpoint(launch::TrainerLink& link, Optimizer& optimizer);

}  // namespace legoai::train
