// Where the next attempt at a job goes on from. Decided here and nowhere else: for restarts, for the first attempts of a retry,
// and for whoever says beforehand what they would begin with. gRPC-free.
//
// A job goes on from the latest of its own committed checkpoints that is kept and whole. A retry that has none of its own goes on
// from the one that it was made for (`Job.starts_from`, of an earlier job), or, where that is damaged, from an older one of that
// job; that job may be a retry itself. Whatever happened, it never goes on from a checkpoint later than `starts_from`: those
// belong to the training that was given up. Thread-safety: functions of the transaction that is given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"
#include "server/store/store.h"

namespace legoai::server {

struct ResumePoint {
  std::optional<v1::Checkpoint> checkpoint;  // nothing: from the beginning
  std::vector<v1::Checkpoint> damaged;       // later ones that are passed over, the latest first

  // It had checkpoints, and all are damaged: to begin anew would be to lose them in silence.
  bool NoneIsWhole() const { return !checkpoint && !damaged.empty(); }
};

// Of a job of any state, also of one that is not stored yet.
absl::StatusOr<ResumePoint> FindResumePoint(store::ReadTransaction& read, const v1::Job& job);

// All kept checkpoints that the job can go on from in this way, damaged ones among them, the latest first.
absl::StatusOr<std::vector<v1::Checkpoint>> ResumableCheckpoints(store::ReadTransaction& read, const v1::Job& job);

// "goes on from step 400", with " of projects/default/jobs/01J..." where that is another job's; "begins anew".
std::string GoesOnText(const v1::Job& job, const std::optional<v1::Checkpoint>& checkpoint);

// Of a point where none is whole: which they are, what is wrong, and what to do.
std::string NoneIsWholeText(const ResumePoint& point);

// The recipe under which that checkpoint was written: a plan has to keep of it what a checkpoint fixes. Nothing: it begins anew.
absl::StatusOr<std::optional<v1::Recipe>> RecipeToKeep(store::ReadTransaction& read, const v1::Job& job);

// Which committed checkpoints are still on the disk, as agents report it: those that are gone stay in the store, with the time,
// and are not listed. The one that the job goes on from is never among them. gRPC-free.
// Thread-safety: functions of the transaction that is given.

// Of the job's checkpoints in this directory, those before its last step that are not among its steps are gone. False, and
// nothing is changed, where none of the job's is in this directory.
absl::StatusOr<bool> KeepOnly(store::Transaction& transaction, const v1::Job& job, const v1::DirectoryKept& kept, int64_t now_us);

// Those of all epochs before the job's are gone.
absl::Status RemoveEarlier(store::Transaction& transaction, const v1::Job& job, int64_t now_us);

}  // namespace legoai::server
