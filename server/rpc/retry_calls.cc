// RetryJob: a job that failed or was cancelled goes on as a new one.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/fleet/resume_point.h"
#include "server/jobs/names.h"
#include "server/jobs/submission.h"
#include "server/jobs/transition.h"
#include "server/rpc/control_plane.h"

namespace legoai::server {
namespace {

// Of those that there are, named where another one was asked for.
constexpr size_t kMostNamed = 20;

// What a retry begins with, and the words for it.
struct Beginning {
  std::optional<v1::Checkpoint> checkpoint;
  std::string text;
};

// "there are those of steps 400, 300", the latest first.
std::string WholeOnes(const std::vector<v1::Checkpoint>& checkpoints) {
  std::vector<std::string> steps;
  for (const v1::Checkpoint& one : checkpoints) {
    if (one.damage().empty()) steps.push_back(absl::StrCat(one.step()));
  }
  if (steps.empty()) return "there is none: leave from_step out, or begin anew with fresh";
  const size_t more = steps.size() - std::min(steps.size(), kMostNamed);
  steps.resize(steps.size() - more);
  return absl::StrCat("there are those of steps ", absl::StrJoin(steps, ", "),
                      more == 0 ? "" : absl::StrCat(" and ", more, " earlier ones"));
}

absl::StatusOr<Beginning> FromStep(store::Transaction& transaction, const v1::Job& old, int64_t step, int64_t now_us) {
  ASSIGN_OR_RETURN(auto checkpoints, ResumableCheckpoints(transaction, old));
  const auto found =
      std::find_if(checkpoints.begin(), checkpoints.end(), [&](const v1::Checkpoint& one) { return one.step() == step; });
  if (found == checkpoints.end()) {
    return FieldError("from_step", absl::StrCat(step),
                      absl::StrCat("is not the step of a checkpoint that ", old.name(), " keeps; ", WholeOnes(checkpoints)),
                      absl::StatusCode::kNotFound);
  }
  if (found->damage().empty()) return Beginning{*found, GoesOnText(old, *found)};
  const std::string text =
      absl::StrCat(GoesOnText(old, *found), ", as was asked for, though it was found damaged (", found->damage(), ")");
  RETURN_IF_ERROR(TrustAgain(transaction, now_us, &*found));
  return Beginning{*found, text};
}

absl::StatusOr<Beginning> BeginningOf(store::Transaction& transaction, const v1::Job& old, const v1::RetryJobRequest& request,
                                      int64_t now_us) {
  if (request.fresh()) return Beginning{std::nullopt, "begins anew, as was asked for"};
  if (request.has_from_step()) return FromStep(transaction, old, request.from_step(), now_us);
  ASSIGN_OR_RETURN(auto point, FindResumePoint(transaction, old));
  if (point.NoneIsWhole()) return FieldError("from_step", "", NoneIsWholeText(point), absl::StatusCode::kFailedPrecondition);
  if (!point.checkpoint) return Beginning{std::nullopt, "begins anew, for it has no checkpoint"};
  std::string text = GoesOnText(old, point.checkpoint);
  if (!point.damaged.empty()) absl::StrAppend(&text, ", for that of step ", point.damaged[0].step(), " is damaged");
  return Beginning{std::move(point.checkpoint), std::move(text)};
}

absl::StatusOr<v1::Job> RetryOf(store::Transaction& transaction, const v1::RetryJobRequest& request, int64_t now_us) {
  ASSIGN_OR_RETURN(auto old, FindJob(transaction, "name", request.name()));
  if (old.state() != v1::FAILED && old.state() != v1::CANCELLED) {
    return FieldError("name", request.name(),
                      absl::StrCat("is ", StateText(old.state()), "; only a job that failed or was cancelled is tried again"),
                      absl::StatusCode::kFailedPrecondition);
  }
  ASSIGN_OR_RETURN(auto beginning, BeginningOf(transaction, old, request, now_us));
  v1::Job job;
  *job.mutable_spec() = old.spec();
  job.set_retry_of(old.name());
  job.set_reason(absl::StrCat("tries ", old.name(), " again; ", beginning.text));
  if (beginning.checkpoint) *job.mutable_starts_from() = *std::move(beginning.checkpoint);
  return job;
}

}  // namespace

absl::StatusOr<v1::Job> ControlPlane::RetryJob(const v1::RetryJobRequest& request) {
  ASSIGN_OR_RETURN(const auto parsed, ParseJobName("name", request.name()));
  RETURN_IF_ERROR(CheckRequestId("request_id", request.request_id()));
  if (request.fresh() && request.has_from_step())
    return FieldError("from_step", absl::StrCat(request.from_step()), "a retry that begins anew (fresh) goes on from no step");
  return Submit(FormatProjectName(parsed.project), request.request_id(), SubmissionDigest(request),
                [&](store::Transaction& transaction) { return RetryOf(transaction, request, now_us_()); });
}

}  // namespace legoai::server
