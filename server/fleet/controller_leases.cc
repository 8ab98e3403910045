// Leases: given to queued jobs, ended when nobody renews them or their job is cancelled.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/fleet/controller.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

// Beyond it a job's place in the queue is not kept up to date: every start of a job would rewrite all that wait behind it.
constexpr int64_t kKeptPositions = 100;

// Between two looks of the deciding thread, on a machine that is merely busy.
constexpr absl::Duration kLongestLook = absl::Seconds(2);

int64_t StepsLeft(const v1::Job& job) { return job.spec().recipe().training().steps() - job.progress().step(); }

// As long as the steps that are left take, by what was measured, or else predicted.
std::optional<absl::Duration> TimeLeft(const v1::Job& job) {
  const double each = job.progress().step_seconds() > 0 ? job.progress().step_seconds() : job.chosen().step_time_seconds();
  if (!(each > 0) || StepsLeft(job) < 0) return std::nullopt;
  return absl::Seconds(each * static_cast<double>(StepsLeft(job)));
}

scheduler::WaitingJob AsWaiting(const v1::Job& job) {
  return {.name = job.name(),
          .priority = job.spec().policy().priority(),
          .restarting = job.state() == v1::RESTARTING,
          .submitted_us = job.create_time_us(),
          .slots = job.world_size(),
          .pool = job.spec().resources().pool(),
          .device_type = job.spec().resources().device_type(),
          .expected_run = TimeLeft(job)};
}

}  // namespace

void Controller::ExpireLeases() {
  std::vector<Lease> expired;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // A server that was stopped, or whose machine slept, has heard nobody meanwhile.
    const auto now = std::chrono::steady_clock::now();
    const absl::Duration pause = absl::FromChrono(now - std::exchange(looked_, now));
    if (pause > kLongestLook) {
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

void Controller::StopCancelled(const std::vector<v1::Job>& jobs) {
  for (const v1::Job& job : jobs) {
    if (job.state() != v1::CANCELLING) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    Lease* const lease = book_.Find(job.name(), job.epoch());
    if (lease == nullptr) continue;  // its end is being written
    const auto worker = workers_.find(lease->worker);
    const uint64_t session = worker == workers_.end() ? 0 : worker->second.session;
    if (session == 0 || (lease->stop_sent && lease->told_session == session)) continue;
    v1::ToAgent stop;
    stop.mutable_stop()->mutable_lease()->set_job(job.name());
    stop.mutable_stop()->mutable_lease()->set_epoch(job.epoch());
    stop.mutable_stop()->set_reason(job.reason());
    sessions_.at(session).link->Send(stop);
    lease->stop_sent = true;
    lease->told_session = session;
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

void Controller::ScheduleJobs(const std::vector<v1::Job>& jobs) {
  const absl::Time now = absl::FromUnixMicros(options_.now_us());
  scheduler::Snapshot snapshot;
  std::map<std::string, v1::Job> waiting;
  snapshot.workers = WorkerViews();
  for (const v1::Job& job : jobs) {
    if (job.state() == v1::QUEUED || (job.state() == v1::RESTARTING && job.has_world_size())) {
      snapshot.waiting.push_back(AsWaiting(job));
      waiting[job.name()] = job;
    }
  }
  if (waiting.empty()) return;
  std::map<std::string, const v1::Job*> by_name;
  for (const v1::Job& job : jobs) by_name[job.name()] = &job;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [name, lease] : book_.all()) {
      scheduler::RunningJob running{.name = name, .slots = {{lease.worker, lease.slots}}};
      const auto job = by_name.find(name);
      const auto left = job == by_name.end() ? std::nullopt : TimeLeft(*job->second);
      if (left) running.expected_end = now + *left;
      snapshot.running.push_back(std::move(running));
    }
  }
  const scheduler::Decision decision = scheduler::Schedule(now, snapshot);
  for (const scheduler::Grant& grant : decision.grants) GrantLease(grant);
  KeepWaits(decision.waits, waiting);
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
    attempt.set_name(absl::StrCat(job.name(), "/attempts/", job.attempts()));
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
    *start.mutable_placement() = placement;
    effects->changed_jobs.push_back(job.name());
    if (absl::Status put = transaction.PutAttempt(job.name(), attempt); !put.ok()) return put;
    return Move(transaction, &job, v1::LEASED, absl::StrCat(grant.slots, " slots of ", grant.worker), now_us);
  });
  if (!status.ok()) return Say(LogLevel::kWarning, absl::StrCat("no lease: ", status.message()), grant.job, job.epoch());
  Say(LogLevel::kInfo, absl::StrCat("leased ", grant.slots, " slots of ", grant.worker), grant.job, job.epoch());
  if (options_.metrics != nullptr) options_.metrics->Lease();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto worker = workers_.find(grant.worker);
  const uint64_t session = worker == workers_.end() ? 0 : worker->second.session;
  book_.Grant({job.name(), job.epoch(), grant.worker, grant.slots, options_.steady(), session});
  SendToWorker(grant.worker, message);
}

// Why a job waits, and its place, where that has changed.
void Controller::KeepWaits(const std::vector<scheduler::Wait>& waits, const std::map<std::string, v1::Job>& waiting) {
  std::vector<std::pair<v1::Job, const scheduler::Wait*>> changed;
  for (const scheduler::Wait& wait : waits) {
    const v1::Job& job = waiting.at(wait.job);
    const bool told = wait.position <= kKeptPositions;
    // What has befallen a restarting job stays its reason.
    const bool same = job.state() == v1::RESTARTING ? job.queue_position() == wait.position : job.reason() == wait.text;
    if (same || (!told && job.queue_position() > kKeptPositions)) continue;
    changed.push_back({job, &wait});
  }
  if (changed.empty()) return;
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
    for (const auto& [seen, wait] : changed) {
      auto job = transaction.GetJob(seen.name());
      if (!job.ok()) return job.status();
      if (!*job || (*job)->version() != seen.version()) continue;  // the next look sees what has become of it
      (*job)->set_queue_position(wait->position);
      if ((*job)->state() == v1::QUEUED) (*job)->set_reason(wait->text);
      effects->changed_jobs.push_back(seen.name());
      if (absl::Status touched = Touch(transaction, &**job, options_.now_us()); !touched.ok()) return touched;
    }
    return absl::OkStatus();
  });
  if (!status.ok()) Say(LogLevel::kError, absl::StrCat("the queue cannot be kept: ", status.message()));
}

}  // namespace legoai::server
