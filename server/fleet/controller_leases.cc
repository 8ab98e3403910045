// Leases: given to queued jobs, ended when nobody renews them.
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/process/mutex.h"
#include "planner/explain.h"
#include "proto/status.h"
#include "proto/text.h"
#include "server/fleet/controller.h"
#include "server/fleet/failure_policy.h"
#include "server/fleet/resume_point.h"
#include "server/jobs/names.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

// Between two looks of the deciding thread, on a machine that is merely busy.
constexpr absl::Duration kLongestLook = absl::Seconds(2);

// `job` has the epoch and the number of it already.
v1::Attempt AttemptOf(const v1::Job& job, const scheduler::Grant& grant, int64_t now_us) {
  v1::Attempt attempt;
  attempt.set_name(FormatAttemptName(job.name(), job.attempts()));
  attempt.set_attempt(job.attempts());
  attempt.set_epoch(job.epoch());
  *attempt.mutable_recipe() = job.chosen().recipe();
  attempt.set_world_size(job.world_size());
  v1::Placement& placement = *attempt.add_placements();
  placement.set_worker(grant.worker);
  placement.set_slots(grant.slots);
  attempt.set_start_time_us(now_us);
  attempt.set_state("leased");
  attempt.set_predicted_step_seconds(job.chosen().step_time_seconds());
  attempt.set_predicted_peak_memory_bytes(job.chosen().peak_memory_bytes());
  *attempt.mutable_predicted_memory() = job.chosen().memory();
  return attempt;
}

// All but where to go on from.
void Describe(const v1::Job& job, const v1::Attempt& attempt, v1::StartAttempt* start) {
  start->mutable_lease()->set_job(job.name());
  start->mutable_lease()->set_epoch(job.epoch());
  start->set_attempt(attempt.attempt());
  *start->mutable_model() = job.spec().model();
  *start->mutable_recipe() = attempt.recipe();
  *start->mutable_dataset() = job.spec().dataset();
  start->set_world_size(attempt.world_size());
  start->set_recipe_text(planner::Summarize(attempt.recipe()));
  *start->mutable_placement() = attempt.placements(0);
}

}  // namespace

void Controller::ExpireLeases() {
  // A server that was stopped, or whose machine slept, has heard nobody meanwhile.
  const auto now = std::chrono::steady_clock::now();
  const absl::Duration pause = absl::FromChrono(now - std::exchange(looked_, now));
  // One late look after the other is the server's own slowness: who is silent is to be noticed all the same.
  const bool stood = pause > kLongestLook, stood_before = std::exchange(stood_before_, stood);
  if (stood && !stood_before) {
    book_.ExtendAll(pause);
    agents_.ExtendAll(pause);
  }
  for (const Lease& lease : book_.Expired(options_.steady())) {
    const std::string reason = absl::StrCat("nothing was heard of ", lease.worker, " for ", DurationText(options_.lease_ttl));
    LogWarning(absl::StrCat("the lease has expired: ", reason), About(lease));
    LoseLease(lease, reason);
  }
}

// Gives nothing, and a job that has failed, where no checkpoint is whole to go on from.
absl::StatusOr<std::optional<v1::StartAttempt>> Controller::StoreLease(const scheduler::Grant& grant, v1::Job* job) {
  std::optional<v1::StartAttempt> started;
  const int64_t now_us = options_.now_us();
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
    started.reset();
    ASSIGN_OR_RETURN(auto stored, transaction.GetJob(grant.job));
    if (!stored) return absl::NotFoundError(grant.job);
    *job = *stored;
    ASSIGN_OR_RETURN(const auto from, FindResumePoint(transaction, *job));
    effects->changed_jobs.push_back(job->name());
    // Since it was queued, another retry of the same job has found them damaged.
    if (from.NoneIsWhole()) return FailAsNoneIsWhole(transaction, job, from, "", now_us);
    job->clear_not_before_time_us();
    job->set_epoch(job->epoch() + 1);
    job->set_attempts(job->attempts() + 1);
    v1::Attempt attempt = AttemptOf(*job, grant, now_us);
    v1::StartAttempt start;
    if (from.checkpoint) {
      attempt.set_resume_step(from.checkpoint->step());
      start.set_resume_step(from.checkpoint->step());
      start.set_resume_directory(from.checkpoint->directory());
      start.set_take_back(from.checkpoint->take_back());
    }
    Describe(*job, attempt, &start);
    started = std::move(start);
    RETURN_IF_ERROR(transaction.PutAttempt(job->name(), attempt));
    return Move(transaction, job, v1::LEASED, SlotsText(grant.slots, grant.worker, job->spec().resources()), now_us);
  });
  if (!status.ok()) return status;
  return started;
}

// The lease is durable before the agent hears of it. Since the decision, an agent of other facts may have connected under the
// worker's name, or this one may have left; and once more while that was stored.
void Controller::GrantLease(const scheduler::Grant& grant) {
  const auto planned = memory_.planned.find(grant.job);
  const auto serves = [&](const std::optional<Agents::Place>& place) {
    return place && (planned == memory_.planned.end() || place->kind == planned->second.kind);
  };
  if (!serves(agents_.PlaceOf(grant.worker))) return;
  v1::Job job;
  const auto start = StoreLease(grant, &job);
  const std::string reason(start.ok() ? job.reason() : start.status().message());
  if (!start.ok() || !*start)
    return LogWarning(absl::StrCat("no lease: ", reason), {.job = grant.job, .worker = start.ok() ? "" : grant.worker});
  if (planned != memory_.planned.end()) planned->second.moves = 0;
  if (options_.metrics != nullptr) options_.metrics->Lease();
  const auto place = agents_.PlaceOf(grant.worker);
  const Lease lease{.job = job.name(),
                    .epoch = job.epoch(),
                    .worker = grant.worker,
                    .slots = grant.slots,
                    .renewed = options_.steady(),
                    .told_session = place ? place->session : 0,
                    .attempt = job.attempts(),
                    .instance = place ? place->instance : ""};
  LogInfo(absl::StrCat("leased: ", reason), About(lease));
  // In the book before it is sent: whoever connects or leaves from now on finds it there.
  book_.Grant(lease);
  if (!serves(place)) return LoseLease(lease, absl::StrCat(grant.worker, " has other slots now"));
  v1::ToAgent message;
  *message.mutable_start() = **start;
  const auto changed = place->leaves ? place : agents_.SendIfStill(grant.worker, *place, message);
  if (!changed) return;
  LoseLease(lease, absl::StrCat(grant.worker, changed->leaves ? " has left" : " has connected anew, or is gone"));
}

// Nobody need wait until it expires.
void Controller::LoseLease(const Lease& lease, const std::string& reason) {
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) {
    return LoseAttempt(transaction, lease.job, lease.epoch, reason, options_.now_us(), effects);
  });
  if (!status.ok()) LogError(std::string(status.message()), About(lease));
}

}  // namespace legoai::server
