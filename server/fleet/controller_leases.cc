// Leases: given to queued jobs, ended when nobody renews them or their job is cancelled.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/explain.h"
#include "server/fleet/controller.h"
#include "server/jobs/names.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

// Between two looks of the deciding thread, on a machine that is merely busy.
constexpr absl::Duration kLongestLook = absl::Seconds(2);

scheduler::WaitingJob AsWaiting(const ActiveJob& job) {
  return {.name = job.name,
          .priority = job.priority,
          .restarting = job.state == v1::RESTARTING,
          .submitted_us = job.submitted_us,
          .slots = job.world_size,
          .pool = job.wanted.pool(),
          .device_type = job.wanted.device_type(),
          .expected_run = job.time_left};
}

}  // namespace

void Controller::ExpireLeases() {
  std::vector<Lease> expired;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // A server that was stopped, or whose machine slept, has heard nobody meanwhile.
    const auto now = std::chrono::steady_clock::now();
    const absl::Duration pause = absl::FromChrono(now - std::exchange(looked_, now));
    // One late look after the other is the server's own slowness: who is silent is to be noticed all the same.
    const bool stood = pause > kLongestLook, stood_before = std::exchange(stood_before_, stood);
    if (stood && !stood_before) {
      book_.Excuse(pause);
      for (auto& [name, worker] : workers_) worker.heard += pause;
    }
    expired = book_.Expired(options_.steady());
  }
  for (const Lease& lease : expired) {
    const std::string reason =
        absl::StrCat("nothing was heard of ", lease.worker, " for ", absl::FormatDuration(options_.lease_ttl));
    Say(LogLevel::kWarning, absl::StrCat("the lease has expired: ", reason), lease.job, lease.epoch);
    const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) {
      return LoseAttempt(transaction, lease.job, lease.epoch, reason, options_.now_us(), effects);
    });
    if (!status.ok()) Say(LogLevel::kError, std::string(status.message()), lease.job, lease.epoch);
  }
}

void Controller::StopCancelled() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [name, lease] : book_.all()) {
    const ActiveJob* const job = jobs_.Find(name);
    if (job == nullptr || job->state != v1::CANCELLING || job->epoch != lease.epoch) continue;
    const auto worker = workers_.find(lease.worker);
    const uint64_t session = worker == workers_.end() ? 0 : worker->second.session;
    if (session == 0 || lease.stop_session == session) continue;
    v1::ToAgent stop;
    stop.mutable_stop()->mutable_lease()->set_job(name);
    stop.mutable_stop()->mutable_lease()->set_epoch(lease.epoch);
    stop.mutable_stop()->set_reason(job->reason);
    sessions_.at(session).link->Send(stop);
    lease.stop_session = session;
  }
}

// An agent that missed two heartbeats is not given anything; whether it lives is seen before its leases expire.
std::vector<scheduler::WorkerView> Controller::WorkerViews() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const absl::Duration now = options_.steady();
  std::vector<scheduler::WorkerView> views;
  for (const auto& [name, entry] : workers_) {
    const bool heard = now - entry.heard < 2.5 * options_.heartbeat_interval + absl::Seconds(1);
    views.push_back({.name = name,
                     .pool = entry.facts.pool(),
                     .device_type = entry.facts.device().type(),
                     .slots = entry.facts.slots(),
                     .free = std::max<int64_t>(0, entry.facts.slots() - book_.UsedSlots(name)),
                     .accepts = entry.session != 0 && heard && !entry.leaves && entry.facts.state() == v1::READY});
  }
  return views;
}

void Controller::ScheduleJobs(const std::vector<scheduler::WorkerView>& workers, Offers* offers, WaitBoard::Waits* waits) {
  const absl::Time now = absl::FromUnixMicros(options_.now_us());
  scheduler::Snapshot snapshot;
  snapshot.workers = workers;
  for (const auto& [name, job] : jobs_.all()) {
    if (job.state == v1::QUEUED || job.state == v1::RESTARTING) snapshot.waiting.push_back(AsWaiting(job));
  }
  if (snapshot.waiting.empty()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [name, lease] : book_.all()) {
      scheduler::RunningJob running{.name = name, .slots = {{lease.worker, lease.slots}}};
      const ActiveJob* const job = jobs_.Find(name);
      if (job != nullptr && job->time_left) running.expected_end = now + *job->time_left;
      snapshot.running.push_back(std::move(running));
    }
  }
  const scheduler::Decision decision = scheduler::Schedule(now, snapshot);
  for (const scheduler::Grant& grant : decision.grants) GrantLease(grant);
  for (const scheduler::Wait& wait : decision.waits) {
    const ActiveJob& job = *jobs_.Find(wait.job);
    std::string reason = wait.text;
    if (wait.why == scheduler::Wait::Why::kTooLarge) absl::StrAppend(&reason, "; ", TooLargeText(job, offers));
    // What has befallen a restarting job stays its reason.
    if (job.state == v1::RESTARTING) reason = absl::StrCat(job.reason, "; ", reason);
    (*waits)[wait.job] = {job.version, std::move(reason), wait.position};
  }
}

// The lease is durable before the agent hears of it.
void Controller::GrantLease(const scheduler::Grant& grant) {
  v1::Job job;
  v1::Attempt attempt;
  v1::ToAgent message;
  const int64_t now_us = options_.now_us();
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
    auto stored = transaction.GetJob(grant.job);
    if (!stored.ok()) return stored.status();
    if (!*stored) return absl::NotFoundError(grant.job);
    job = **stored;
    auto checkpoints = transaction.ListCheckpoints(grant.job);
    if (!checkpoints.ok()) return checkpoints.status();
    job.set_epoch(job.epoch() + 1);
    job.set_attempts(job.attempts() + 1);
    attempt = v1::Attempt();
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
    message.Clear();
    v1::StartAttempt& start = *message.mutable_start();
    for (const v1::Checkpoint& checkpoint : *checkpoints) {
      if (!job.has_committed_step() || checkpoint.step() != job.committed_step()) continue;
      attempt.set_resume_step(checkpoint.step());
      start.set_resume_step(checkpoint.step());
      start.set_resume_directory(checkpoint.directory());
    }
    start.mutable_lease()->set_job(job.name());
    start.mutable_lease()->set_epoch(job.epoch());
    start.set_attempt(attempt.attempt());
    *start.mutable_model() = job.spec().model();
    *start.mutable_recipe() = attempt.recipe();
    *start.mutable_dataset() = job.spec().dataset();
    start.set_world_size(attempt.world_size());
    start.set_recipe_text(planner::Summarize(attempt.recipe()));
    *start.mutable_placement() = placement;
    effects->changed_jobs.push_back(job.name());
    if (absl::Status put = transaction.PutAttempt(job.name(), attempt); !put.ok()) return put;
    return Move(transaction, &job, v1::LEASED, SlotsText(grant.slots, grant.worker, job.spec().resources()), now_us);
  });
  if (!status.ok()) return Say(LogLevel::kWarning, absl::StrCat("no lease: ", status.message()), grant.job, job.epoch());
  Say(LogLevel::kInfo, absl::StrCat("leased: ", job.reason()), grant.job, job.epoch());
  if (options_.metrics != nullptr) options_.metrics->Lease();
  Lease lease{job.name(), job.epoch(), grant.worker, grant.slots, options_.steady()};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const WorkerEntry& worker = workers_.at(grant.worker);
    lease.told_session = worker.session;
    book_.Grant(lease);
    if (!worker.leaves) return SendToWorker(grant.worker, message);
  }
  LeaveLease(lease);  // the goodbye came while this was stored
}

// Its worker leaves, and starts nothing more: nobody need wait until the lease expires.
void Controller::LeaveLease(const Lease& lease) {
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) {
    return LoseAttempt(transaction, lease.job, lease.epoch, absl::StrCat(lease.worker, " has left"), options_.now_us(), effects);
  });
  if (!status.ok()) Say(LogLevel::kError, std::string(status.message()), lease.job, lease.epoch);
}

}  // namespace legoai::server
