#include "server/fleet/checkpoint_damage.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "server/fleet/resume_point.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

// To that of the newest that is kept and whole, or to none; in memory.
absl::Status SetCommittedStep(store::Transaction& transaction, v1::Job* job) {
  ASSIGN_OR_RETURN(const auto kept, transaction.ListKeptCheckpoints(job->name()));
  job->clear_committed_step();
  for (const v1::Checkpoint& one : kept) {
    if (one.damage().empty()) job->set_committed_step(std::max(job->committed_step(), one.step()));
  }
  return absl::OkStatus();
}

// A checkpoint of `owner`, which is over: a retry of it has found the damage.
absl::Status PutEarlier(store::Transaction& transaction, const v1::Checkpoint& checkpoint, v1::Job owner, int64_t now_us) {
  absl::Status status = transaction.PutCheckpoint(owner.name(), checkpoint);
  if (status.ok()) status = SetCommittedStep(transaction, &owner);
  return status.ok() ? Touch(transaction, &owner, now_us) : status;
}

// Of a job that the store does not have any more, the retry alone knows the checkpoint.
absl::Status Put(store::Transaction& transaction, const v1::Checkpoint& checkpoint, int64_t now_us, v1::Job* job) {
  const std::string owner = checkpoint.name().substr(0, checkpoint.name().find("/checkpoints/"));
  if (owner == job->name()) {
    absl::Status status = transaction.PutCheckpoint(owner, checkpoint);
    return status.ok() ? SetCommittedStep(transaction, job) : status;
  }
  ASSIGN_OR_RETURN(auto earlier, transaction.GetJob(owner));
  const v1::Checkpoint& start = job->starts_from();
  if (checkpoint.name() == start.name() && checkpoint.epoch() == start.epoch()) *job->mutable_starts_from() = checkpoint;
  if (!earlier) return absl::OkStatus();
  // There, too: a committed step goes back with it alone.
  earlier->set_steps_back(earlier->steps_back() + 1);
  return PutEarlier(transaction, checkpoint, *std::move(earlier), now_us);
}

// Of those that the job can go on from, the one that the attempt has found damaged. One that is marked already only if it went
// on from it: it was leased before another job's attempt said so.
std::optional<v1::Checkpoint> Found(const std::vector<v1::Checkpoint>& checkpoints, const v1::Attempt& attempt) {
  const v1::CheckpointDamage& damage = attempt.damage();
  const bool began = attempt.has_resume_step() && attempt.resume_step() == damage.step();
  for (const v1::Checkpoint& one : checkpoints) {
    const bool same = one.step() == damage.step() && one.directory() == damage.directory();
    if (same && (one.damage().empty() || began)) return one;
  }
  return std::nullopt;
}

}  // namespace

bool DamagedItsOwn(const v1::Attempt& attempt) {
  // Steps that it saves are later than the one it goes on from (lease_binding.h).
  return attempt.has_damage() && attempt.damage().step() > attempt.resume_step();
}

absl::StatusOr<std::optional<std::string>> PassOver(store::Transaction& transaction, const v1::Attempt& attempt, int64_t now_us,
                                                    v1::Job* job) {
  ASSIGN_OR_RETURN(const auto checkpoints, ResumableCheckpoints(transaction, *job));
  std::optional<v1::Checkpoint> found = Found(checkpoints, attempt);
  if (!found) return std::optional<std::string>();
  if (found->damage().empty()) {
    found->set_damage(attempt.damage().detail().empty() ? "it does not load" : attempt.damage().detail());
    found->set_damage_time_us(now_us);
    found->clear_take_back();
    RETURN_IF_ERROR(Put(transaction, *found, now_us, job));
  }
  job->set_steps_back(job->steps_back() + 1);
  return std::optional(absl::StrCat("the checkpoint of step ", found->step(), " is damaged (", found->damage(), ")"));
}

absl::Status TrustAgain(store::Transaction& transaction, int64_t now_us, v1::Checkpoint* checkpoint) {
  checkpoint->clear_damage();
  checkpoint->clear_damage_time_us();
  checkpoint->set_take_back(true);
  const std::string owner = checkpoint->name().substr(0, checkpoint->name().find("/checkpoints/"));
  auto job = transaction.GetJob(owner);
  if (!job.ok() || !*job) return job.status();
  return PutEarlier(transaction, *checkpoint, **std::move(job), now_us);
}

}  // namespace legoai::server
