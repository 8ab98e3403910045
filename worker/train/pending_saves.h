// What the launcher's verdicts do to the checkpoints on the disk. Torch-free.
//
// Verdicts come while the rank trains (worker/launch/pending_commits.h), and a disk may be slow: so a thread of its own puts a
// checkpoint that is committed in its place, at once, and removes one that is denied. Rank 0 does it for all; on the others
// nothing happens here. Older checkpoints are removed in Settle(), while the other ranks wait in a meeting. Not thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "core/process/mutex.h"
#include "worker/launch/trainer_link.h"

namespace legoai::train {

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

}  // namespace legoai::train
