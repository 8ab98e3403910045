#include "server/fleet/checkpoint_damage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/fleet/resume_point.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

// To that of the newest that is kept and whole, or to none; in memory.
absl::Status SetCommittedStep(store::Transaction& transaction, v1::Job* job) {
  const auto kept = transaction.ListKeptCheckpoints(job->name());
  if (!kept.ok()) return kept.status();
  job->clear_committed_step();
  for (const v1::Checkpoint& one : *kept) {
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
  auto earlier = transaction.GetJob(owner);
  if (!earlier.ok()) return earlier.status();
  const v1::Checkpoint& start = job->starts_from();
  if (checkpoint.name() == start.name() && checkpoint.epoch() == start.epoch()) *job->mutable_starts_from() = checkpoint;
  return *earlier ? PutEarlier(transaction, checkpoint, **std::move(earlier), now_us) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<std::string>> PassOver(store::Transaction& transaction, const v1::CheckpointDamage& damage,
                                                    int64_t now_us, v1::Job* job) {
  auto checkpoints = ResumableCheckpoints(transaction, *job);
  if (!checkpoints.ok()) return checkpoints.status();
  const auto found = std::find_if(checkpoints->begin(), checkpoints->end(), [&](const v1::Checkpoint& one) {
    return one.damage().empty() && one.step() == damage.step() && one.directory() == damage.directory();
  });
  if (found == checkpoints->end()) return std::optional<std::string>();
  found->set_damage(damage.detail().empty() ? "it does not load" : damage.detail());
  found->set_damage_time_us(now_us);
  if (absl::Status status = Put(transaction, *found, now_us, job); !status.ok()) return status;
  job->set_steps_back(job->steps_back() + 1);
  return std::optional(absl::StrCat("the checkpoint of step ", damage.step(), " is damaged (", found->damage(), ")"));
}

}  // namespace legoai::server
