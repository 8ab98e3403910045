// Where the next attempt at a job resumes from. Decided here and nowhere else: for restarts, for the first attempts of a retry,
// and for whoever says beforehand what they would begin with. gRPC-free.
//
// A job resumes from the latest of its own committed checkpoints that is kept and whole. A retry that has none of its own resumes
// from the one that it was made for (`Job.starts_from`, of an earlier job), or, where that is damaged, from an older one of that
// job; that job may be a retry itself. Whatever happened, it never resumes from a checkpoint later than `starts_from`: those
// belong to the training that was given up. Thread-safety: functions of the transaction that is given.
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
  std::optional<v1::Checkpoint> checkpoint;  // nothing: from the beginning
  std::vector<v1::Checkpoint> damaged;       // later ones that are passed over, the latest first

  // It had checkpoints, and all are damaged: to start over would be to lose them in silence.
  bool NoneIsWhole() const { return !checkpoint && !damaged.empty(); }
};

// Of a job of any state, also of one that is not stored yet.
absl::StatusOr<ResumePoint> FindResumePoint(store::ReadTransaction& read, const v1::Job& job);

// All kept checkpoints that the job can resume from in this way, damaged ones among them, the latest first.
absl::StatusOr<std::vector<v1::Checkpoint>> ResumableCheckpoints(store::ReadTransaction& read, const v1::Job& job);

// "goes on from step 400", with " of projects/default/jobs/01J..." where that is another job's; "begins anew".
std::string GoesOnText(const v1::Job& job, const std::optional<v1::Checkpoint>& checkpoint);

// Of a point where none is whole: which they are, what is wrong, and what to do.
std::string NoneIsWholeText(const ResumePoint& point);

// The recipe under which that checkpoint was written: a plan has to keep of it what a checkpoint fixes. Nothing: it starts over.
absl::StatusOr<std::optional<v1::Recipe>> RecipeToKeep(store::ReadTransaction& read, const v1::Job& job);

// Which committed checkpoints are still on the disk, as agents report it: those that are gone stay in the store, with the time,
// and are not listed. The one that the job resumes from is never among them. gRPC-free.
// Thread-safety: functions of the transaction that is given.

// Of the job's checkpoints in this directory, those before its last step that are not among its steps are gone. False, and
// nothing is changed, where none of the job's is in this directory.
absl::StatusOr<bool> KeepOnly(store::Transaction& transaction, const v1::Job& job, const v1::DirectoryKept& kept, int64_t now_us);

// Those of all epochs before the job's are gone.
absl::Status RemoveEarlier(store::Transaction& transaction, const v1::Job& job, int64_t now_us);

// What an attempt's report that its checkpoint is damaged does to a job.

// Whether the attempt found a checkpoint damaged that it has saved itself, and not the one that it was to resume from.
bool DamagedItsOwn(const v1::Attempt& attempt);

// Marks the checkpoint that `attempt` (its latest, with the damage) has found damaged, whether its own or of the job that
// it tries again: it is never resumed from any more (FindResumePoint() chooses the next older one). Counts the step back in both
// jobs, and sets the committed step of the one that has written it to that of the newest that is kept and whole, or to none; of
// `job` in memory, of another one in the store. Returns the reason, "the checkpoint of step 8 is damaged (…)". Another retry may
// have found the same before: then it is counted and told, and the mark stays as it was.
//
// Nothing, and nothing is changed, where the damage is of no kept checkpoint that the job could resume from.
absl::StatusOr<std::optional<std::string>> MarkDamaged(store::Transaction& transaction, const v1::Attempt& attempt,
                                                       int64_t now_us, v1::Job* job);

// Takes the mark from a checkpoint, which whoever resumes from it verifies: what was damaged may have been the way to it, a disk
// that was away or a cable. A worker that has put its folder aside gives it its place again. The committed step of the job that
// has written it follows.
absl::Status TrustAgain(store::Transaction& transaction, int64_t now_us, v1::Checkpoint* checkpoint);

}  // namespace legoai::server
