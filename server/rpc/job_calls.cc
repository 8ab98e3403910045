// The calls of ControlPlane that make, end and show one job.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/rpc.h"
#include "proto/status.h"
#include "server/jobs/names.h"
#include "server/jobs/request_checks.h"
#include "server/jobs/stop.h"
#include "server/jobs/submission.h"
#include "server/jobs/transition.h"
#include "server/rpc/control_plane.h"
#include "server/rpc/readable_data.h"

namespace legoai::server {
namespace {

constexpr size_t kMostReason = 500;
constexpr int64_t kMostTransitions = 1000;

// The job of an earlier call with this request_id.
absl::StatusOr<v1::Job> Repeat(store::Transaction& transaction, const store::ReadTransaction::EarlierSubmission& earlier,
                               const std::string& request_id, const std::string& digest) {
  if (earlier.content_sha256 != digest) {
    return FieldError("request_id", request_id,
                      absl::StrCat("was used for ", earlier.job, " with another content; give each submission an id of its own"),
                      absl::StatusCode::kAlreadyExists);
  }
  return FindJob(transaction, "request_id", earlier.job);
}

// The first line of its history.
v1::Transition FirstTransition(const v1::Job& job) {
  v1::Transition transition;
  transition.set_job(job.name());
  transition.set_version(job.version());
  transition.set_to(job.state());
  transition.set_reason(job.reason());
  transition.set_time_us(job.create_time_us());
  return transition;
}

absl::Status Insert(store::Transaction& transaction, const v1::Job& job, const std::optional<store::Submission>& submission) {
  absl::Status status = transaction.InsertJob(job, submission);
  // Somebody else was faster with the same request_id: looked up when the whole runs again.
  if (absl::IsAlreadyExists(status) && submission) return absl::AbortedError(status.message());
  if (status.ok()) status = transaction.AppendTransition(FirstTransition(job));
  // Of what a retry begins with, its log tells as well.
  return status.ok() && !job.retry_of().empty() ? AppendStateLine(transaction, job, job.create_time_us()) : status;
}

bool IsNews(const WatchState& live, const WatchState& seen) {
  return (live.planning_seconds >= 0 && live.planning_seconds != seen.planning_seconds) || live.wait != seen.wait;
}

// Those after a version; where they are too many for a message the latest of them.
absl::StatusOr<std::vector<v1::Transition>> LatestTransitions(store::ReadTransaction& transaction, const std::string& job,
                                                              int64_t after_version) {
  auto latest = transaction.ListTransitions(job, after_version, kMostTransitions);
  auto next = latest;
  while (next.ok() && next->size() == kMostTransitions) {
    next = transaction.ListTransitions(job, next->back().version(), kMostTransitions);
    if (!next.ok()) return next.status();
    latest->erase(latest->begin(), latest->begin() + next->size());
    latest->insert(latest->end(), next->begin(), next->end());
  }
  return latest;
}

}  // namespace

absl::StatusOr<v1::Job> ControlPlane::Submit(const std::string& parent, const std::string& request_id, const std::string& digest,
                                             const std::function<absl::StatusOr<v1::Job>(store::Transaction&)>& make) {
  const std::string name = absl::StrCat(parent, "/jobs/", ids_.Next());
  std::optional<store::Submission> submission;
  if (!request_id.empty()) submission = store::Submission{parent, request_id, digest};
  v1::Job job;
  const absl::Status status = store_->Write([&](store::Transaction& transaction) -> absl::Status {
    if (submission) {
      ASSIGN_OR_RETURN(const auto earlier, transaction.FindSubmission(parent, request_id));
      if (earlier) {
        auto repeated = Repeat(transaction, *earlier, request_id, digest);
        if (repeated.ok()) job = *std::move(repeated);
        return repeated.status();
      }
    }
    ASSIGN_OR_RETURN(auto made, make(transaction));
    job = std::move(made);
    job.set_name(name);
    job.set_state(v1::SUBMITTED);
    job.set_version(1);
    job.set_create_time_us(now_us_());
    job.set_update_time_us(job.create_time_us());
    return Insert(transaction, job, submission);
  });
  if (!status.ok()) return status;
  if (job.name() == name) {
    notifier_->JobChanged(name);
    fleet_->JobChanged(name);
  }
  return job;
}

absl::StatusOr<v1::Job> ControlPlane::CreateJob(const v1::CreateJobRequest& request) {
  ASSIGN_OR_RETURN(auto spec, CheckSubmission(request));
  RETURN_IF_ERROR(CheckReadable(spec, *fleet_, ThisHost()));
  v1::Job job;
  *job.mutable_spec() = std::move(spec);
  job.set_reason("waits to be planned");
  if (request.validate_only()) return job;
  return Submit(request.parent(), request.request_id(), SubmissionDigest(request), [&](store::Transaction&) { return job; });
}

absl::StatusOr<v1::Job> ControlPlane::CancelJob(const v1::CancelJobRequest& request) {
  RETURN_IF_ERROR(CheckText("reason", request.reason(), kMostReason));
  v1::Job job;
  bool changed = false;
  const absl::Status status = store_->Write([&](store::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(job, FindJob(transaction, "name", request.name()));
    ASSIGN_OR_RETURN(changed, server::CancelJob(transaction, request, now_us_(), &job));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (changed) {
    notifier_->JobChanged(job.name());
    fleet_->JobChanged(job.name());
  }
  return job;
}

absl::StatusOr<v1::Job> ControlPlane::GetJob(const v1::GetJobRequest& request) {
  v1::Job answer;
  const absl::Status status = ReadJob("name", request.name(), [&](store::ReadTransaction&, v1::Job& job) {
    answer = std::move(job);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  fleet_->DescribeWait(&answer);
  return answer;
}

absl::StatusOr<std::optional<v1::WatchJobResponse>> ControlPlane::PollJob(const v1::WatchJobRequest& request, WatchState* seen) {
  if (request.after_version() < 0)
    return FieldError("after_version", absl::StrCat(request.after_version()), "must not be negative");
  std::optional<v1::WatchJobResponse> news;
  const absl::Status status =
      ReadJob("name", request.name(), [&](store::ReadTransaction& transaction, v1::Job& job) -> absl::Status {
        WatchState live;
        if (fleet_->DescribeWait(&job)) live.wait = job.reason();
        const auto planning = job.state() == v1::PLANNING ? notifier_->Planning(job.name()) : std::nullopt;
        if (planning) live.planning_seconds = planning->elapsed_seconds();
        const bool is_news = seen != nullptr && IsNews(live, *seen);
        // A final job always is an answer: nothing follows it that could wake a watch which has seen it before.
        if (job.version() == request.after_version() && !is_news && !IsFinal(job.state())) return absl::OkStatus();
        if (seen != nullptr && seen->config_json) job.mutable_spec()->mutable_model()->clear_config_json();
        live.config_json = true;
        if (seen != nullptr) *seen = live;
        news.emplace();
        if (planning) {
          *news->mutable_planning() = *planning;
          news->mutable_planning()->clear_best();  // whole recipes, which are for those who asked for the plan
        }
        ASSIGN_OR_RETURN(const auto transitions, LatestTransitions(transaction, job.name(), request.after_version()));
        for (const v1::Transition& transition : transitions) *news->add_transitions() = transition;
        *news->mutable_job() = std::move(job);
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return news;
}

}  // namespace legoai::server
