#include "server/fleet/resume_point.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/status.h"

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

}  // namespace legoai::server
