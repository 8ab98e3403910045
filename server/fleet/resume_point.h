// Where the next attempt of a job resumes from: for restarts, for first attempts of a retry, and for messages that announce it.
// Decided only here. gRPC-free.
//
// A job resumes from the latest of its own committed checkpoints that is kept and intact. A retry without its own resumes from
// the one it was created for (`Job.starts_from`, of an earlier job), or, if that is damaged, from an older one of that job, which
// may itself be a retry. It never resumes from a checkpoint later than `starts_from`, because those belong to the abandoned
// training. Thread-safety: functions of the given transaction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/checkpoint.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"
#include "server/store/store.h"

namespace legoai::server {

struct ResumePoint {
  std::optional<v1::Checkpoint> checkpoint;  // unset: from the beginning
  std::vector<v1::Checkpoint> damaged;       // later ones that are skipped, latest first

  // It has checkpoints, and all are damaged: starting over would silently lose them.
  bool NoneIsWhole() const { return !checkpoint && !damaged.empty(); }
};

// For a job in any state, even if not stored yet.
absl::StatusOr<ResumePoint> FindResumePoint(store::ReadTransaction& read, const v1::Job& job);

// All kept checkpoints that the job can resume from in this way, including damaged ones, latest first.
absl::StatusOr<std::vector<v1::Checkpoint>> ResumableCheckpoints(store::ReadTransaction& read, const v1::Job& job);

// "goes on from step 400", with " of projects/default/jobs/01J..." if it is another job's; "begins anew".
std::string GoesOnText(const v1::Job& job, const std::optional<v1::Checkpoint>& checkpoint);

// For a point without an intact checkpoint: which checkpoints there are, what is wrong, and the remedy.
std::string NoneIsWholeText(const ResumePoint& point);

// The recipe with which that checkpoint was written: a plan must keep the settings that a checkpoint fixes. Nothing: it starts
// over.
absl::StatusOr<std::optional<v1::Recipe>> RecipeToKeep(store::ReadTransaction& read, const v1::Job& job);

// Tracks which committed checkpoints are still on disk, as reported by agents: removed ones stay in the store with the time of
// removal and are not listed. The one that the job resumes from is never removed. gRPC-free. Thread-safety: functions of the
// given transaction.

// Marks as removed the job's checkpoints in this directory that are before its last step and not among its steps. False, and
// nothing is changed, if the job has none in this directory.
absl::StatusOr<bool> KeepOnly(store::Transaction& transaction, const v1::Job& job, const v1::DirectoryKept& kept, int64_t now_us);

// Marks as removed those of all epochs before the job's.
absl::Status RemoveEarlier(store::Transaction& transaction, const v1::Job& job, int64_t now_us);

// Effects of an attempt's report of a damaged checkpoint on a job.

// Whether the attempt found its own checkpoint damaged, and not the one that it was to resume from.
bool DamagedItsOwn(const v1::Attempt& attempt);

// Marks the checkpoint that `attempt` (the latest, with the damage) found damaged, whether of the job itself or of the job that
// it retries: it is never resumed from again (FindResumePoint() chooses the next older one). Counts it in `steps_back`, and sets
// the committed step of the job that wrote it to that of the newest kept and intact checkpoint, or to none; for `job` in memory,
// for another job in the store. Returns the reason, "the checkpoint of step 8 is damaged (…)". If another retry has already
// found the damage, it is counted and reported, and the mark stays unchanged.
//
// Nothing, and nothing is changed, if the damage is not of a kept checkpoint that the job could resume from.
absl::StatusOr<std::optional<std::string>> MarkDamaged(store::Transaction& transaction, const v1::Attempt& attempt,
                                                       int64_t now_us, v1::Job* job);

// Removes the mark from a checkpoint; resuming verifies it again. The damage may have been in the path to it, such as an
// unavailable disk or a cable. A worker that has put its folder aside moves it back. Updates the committed step of the job that
// wrote it.
absl::Status TrustAgain(store::Transaction& transaction, int64_t now_us, v1::Checkpoint* checkpoint);

}  // namespace legoai::server
