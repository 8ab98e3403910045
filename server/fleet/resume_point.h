// Where the next attempt at a job goes on from. Decided here and nowhere else: for restarts, for the first attempts of a retry,
// and for whoever says beforehand what they would begin with. gRPC-free.
//
// A job goes on from the latest of its own committed checkpoints that is kept and whole. A retry that has none of its own goes on
// from the one that it was made for (`Job.starts_from`, of an earlier job), or, where that is damaged, from an older one of that
// job; that job may be a retry itself. Whatever happened, it never goes on from a checkpoint later than `starts_from`: those
// belong to the training that was given up. Thread-safety: functions of the transaction that is given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
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

}  // namespace legoai::server
