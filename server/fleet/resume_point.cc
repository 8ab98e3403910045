#include "server/fleet/resume_point.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/status.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

// The job of which a checkpoint is.
std::string JobOf(const v1::Checkpoint& checkpoint) {
  return checkpoint.name().substr(0, checkpoint.name().find("/checkpoints/"));
}

absl::Status MarkGone(store::Transaction& transaction, const v1::Job& job, int64_t now_us,
                      const std::function<bool(const v1::Checkpoint&)>& gone) {
  ASSIGN_OR_RETURN(auto checkpoints, transaction.ListKeptCheckpoints(job.name()));
  for (v1::Checkpoint& checkpoint : checkpoints) {
    const bool latest = job.has_committed_step() && checkpoint.step() == job.committed_step();
    // Nobody removes what was put aside: it stays listed, with what is wrong with it.
    if (!checkpoint.damage().empty()) continue;
    if (latest || !gone(checkpoint)) continue;
    checkpoint.set_remove_time_us(now_us);
    RETURN_IF_ERROR(transaction.PutCheckpoint(job.name(), checkpoint));
  }
  return absl::OkStatus();
}

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

absl::StatusOr<std::vector<v1::Checkpoint>> ResumableCheckpoints(store::ReadTransaction& read, const v1::Job& job) {
  std::vector<v1::Checkpoint> found;
  int64_t latest = std::numeric_limits<int64_t>::max();
  for (std::optional<v1::Job> at = job; at;) {
    ASSIGN_OR_RETURN(auto kept, read.ListKeptCheckpoints(at->name()));
    std::erase_if(kept, [&](const v1::Checkpoint& one) { return one.step() > latest; });
    // They come by step, then by epoch: where a step was done again, the later one counts.
    found.insert(found.end(), std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
    if (!at->has_starts_from()) break;
    const v1::Checkpoint start = at->starts_from();
    latest = std::min(latest, start.step());
    ASSIGN_OR_RETURN(auto earlier, read.GetJob(JobOf(start)));
    if (!earlier) found.push_back(start);  // the store has forgotten that job
    at = std::move(earlier);
  }
  return found;
}

absl::StatusOr<ResumePoint> FindResumePoint(store::ReadTransaction& read, const v1::Job& job) {
  ASSIGN_OR_RETURN(auto checkpoints, ResumableCheckpoints(read, job));
  ResumePoint point;
  for (v1::Checkpoint& checkpoint : checkpoints) {
    if (checkpoint.damage().empty()) {
      point.checkpoint = std::move(checkpoint);
      break;
    }
    point.damaged.push_back(std::move(checkpoint));
  }
  return point;
}

std::string GoesOnText(const v1::Job& job, const std::optional<v1::Checkpoint>& checkpoint) {
  if (!checkpoint) return "begins anew";
  const std::string of = JobOf(*checkpoint);
  return absl::StrCat("goes on from step ", checkpoint->step(), of == job.name() ? "" : absl::StrCat(" of ", of));
}

std::string NoneIsWholeText(const ResumePoint& point) {
  std::vector<std::string> each;
  for (const v1::Checkpoint& one : point.damaged) each.push_back(absl::StrCat("step ", one.step(), ": ", one.damage()));
  return absl::StrCat("none of its checkpoints is whole (", absl::StrJoin(each, "; "),
                      "): `lego retry --from STEP` tries one of them once more, `--fresh` begins anew");
}

absl::StatusOr<std::optional<v1::Recipe>> RecipeToKeep(store::ReadTransaction& read, const v1::Job& job) {
  ASSIGN_OR_RETURN(const auto point, FindResumePoint(read, job));
  if (!point.checkpoint) return std::optional<v1::Recipe>();
  ASSIGN_OR_RETURN(const auto attempts, read.ListAttempts(JobOf(*point.checkpoint)));
  for (const v1::Attempt& attempt : attempts) {
    if (attempt.attempt() == point.checkpoint->attempt()) return std::optional(attempt.recipe());
  }
  return std::optional<v1::Recipe>();
}

absl::StatusOr<bool> KeepOnly(store::Transaction& transaction, const v1::Job& job, const v1::DirectoryKept& kept,
                              int64_t now_us) {
  if (kept.steps().empty()) return true;
  ASSIGN_OR_RETURN(const auto known, transaction.ListKeptCheckpoints(job.name()));
  const auto there = [&](const v1::Checkpoint& one) { return one.directory() == kept.directory(); };
  if (std::none_of(known.begin(), known.end(), there)) return false;
  const std::set<int64_t> steps(kept.steps().begin(), kept.steps().end());
  const absl::Status status = MarkGone(transaction, job, now_us, [&](const v1::Checkpoint& one) {
    return there(one) && one.step() < *steps.rbegin() && steps.count(one.step()) == 0;
  });
  if (!status.ok()) return status;
  return true;
}

absl::Status RemoveEarlier(store::Transaction& transaction, const v1::Job& job, int64_t now_us) {
  return MarkGone(transaction, job, now_us, [&](const v1::Checkpoint& one) { return one.epoch() < job.epoch(); });
}

bool DamagedItsOwn(const v1::Attempt& attempt) {
  // Steps that it saves are later than the one it goes on from (attempt_facts.h).
  return attempt.has_damage() && attempt.damage().step() > attempt.resume_step();
}

absl::StatusOr<std::optional<std::string>> MarkDamaged(store::Transaction& transaction, const v1::Attempt& attempt,
                                                       int64_t now_us, v1::Job* job) {
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
