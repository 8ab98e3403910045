// Leases: given to queued jobs, ended when nobody renews them or their job is cancelled.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/process/mutex.h"
#include "planner/explain.h"
#include "proto/quantity_text.h"
#include "proto/status.h"
#include "server/fleet/after_failure.h"
#include "server/fleet/controller.h"
#include "server/fleet/failure_policy.h"
#include "server/fleet/resume_point.h"
#include "server/jobs/names.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

// Between two looks of the deciding thread, on a machine that is merely busy.
constexpr absl::Duration kLongestLook = absl::Seconds(2);

// So often a job is planned again because slots of another kind are free, before it waits for those that it is planned for: where
// two kinds are free by turns, it still starts.
constexpr int64_t kMostMoves = 2;

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
  std::vector<Lease> expired;
  {
    const MutexLock lock(mutex_);
    // A server that was stopped, or whose machine slept, has heard nobody meanwhile.
    const auto now = std::chrono::steady_clock::now();
    const absl::Duration pause = absl::FromChrono(now - std::exchange(looked_, now));
    // One late look after the other is the server's own slowness: who is silent is to be noticed all the same.
    const bool stood = pause > kLongestLook, stood_before = std::exchange(stood_before_, stood);
    if (stood && !stood_before) {
      book_.ExtendAll(pause);
      for (auto& [name, worker] : workers_) worker.heard += pause;
    }
    expired = book_.Expired(options_.steady());
  }
  for (const Lease& lease : expired) {
    const std::string reason = absl::StrCat("nothing was heard of ", lease.worker, " for ", DurationText(options_.lease_ttl));
    LogWarning(absl::StrCat("the lease has expired: ", reason), About(lease));
    const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) {
      return LoseAttempt(transaction, lease.job, lease.epoch, reason, options_.now_us(), effects);
    });
    if (!status.ok()) LogError(std::string(status.message()), About(lease));
  }
}

void Controller::StopCancelled() {
  const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  const absl::Duration now = options_.steady();
  std::map<std::string, int64_t> kept;  // for jobs that are being planned for them
  for (const auto& [job, plan] : plans_) {
    if (!*plan.cancelled) kept[plan.keeps] += plan.cluster.devices_per_node();
  }
  std::vector<scheduler::WorkerView> views;
  for (const auto& [name, entry] : workers_) {
    const bool heard = now - entry.heard < 2.5 * options_.heartbeat_interval + absl::Seconds(1);
    views.push_back({.name = name,
                     .pool = entry.facts.pool(),
                     .device_type = entry.facts.device().type(),
                     .slots = entry.facts.slots(),
                     .free = std::max<int64_t>(0, entry.facts.slots() - book_.UsedSlots(name) - kept[name]),
                     .accepts = entry.session != 0 && heard && !entry.leaves && entry.facts.state() == v1::READY,
                     .kind = SlotKind(entry.facts)});
  }
  return views;
}

scheduler::WaitingJob Controller::AsWaiting(const ActiveJob& job, const Kinds& kinds) const {
  scheduler::WaitingJob waiting = {.name = job.name,
                                   .priority = job.priority,
                                   .restarting = job.epoch > 0,
                                   .submitted_us = job.submitted_us,
                                   .slots = job.world_size,
                                   .pool = job.wanted.pool(),
                                   .device_type = job.wanted.device_type()};
  if (job.time_left) waiting.expected_run = *job.time_left + jobs_.longest_start();
  const auto planned = planned_.find(job.name);
  const auto there = kinds.find(waiting.pool);
  if (planned == planned_.end() || there == kinds.end()) return waiting;
  waiting.kind = planned->second.kind;
  const auto own = there->second.find(waiting.kind);
  const bool stays = planned->second.moves >= kMostMoves && own != there->second.end() && own->second >= job.world_size;
  const auto refusal = refusals_.find(job.name);
  std::vector<std::string> possible = {waiting.kind};
  bool all = !stays;
  for (const auto& [kind, largest] : there->second) {
    const bool refused = refusal != refusals_.end() && refusal->second.Refuses(ClusterName(kind, job.world_size));
    if (kind == waiting.kind) continue;
    if (!stays && !refused) possible.push_back(kind);
    all = all && !refused;
  }
  if (!all) waiting.kinds = std::move(possible);
  return waiting;
}

// What becomes of slots that a job was given and its recipe was not chosen for; nothing: they are its own.
std::optional<Controller::ToPlan> Controller::Replan(const scheduler::Grant& grant, const Offers& offers) const {
  const auto planned = planned_.find(grant.job);
  const v1::Worker* const worker = offers.Find(grant.worker);
  if (planned == planned_.end() || worker == nullptr) return std::nullopt;
  const std::string kind = SlotKind(*worker);
  if (kind == planned->second.kind) return std::nullopt;
  return ToPlan{
      jobs_.Find(grant.job), worker, grant.slots,
      absl::StrCat("its recipe is for slots of ", planned->second.kind, ", and those that are free are of ", kind, ": "),
      /*moves=*/true};
}

// Gives those that are to be planned again for the slots that they could have.
std::vector<Controller::ToPlan> Controller::ScheduleJobs(const std::vector<scheduler::WorkerView>& workers, Offers* offers,
                                                         WaitReasons::Waits* waits) {
  const absl::Time now = absl::FromUnixMicros(options_.now_us());
  scheduler::Snapshot snapshot;
  snapshot.workers = workers;
  Kinds kinds;
  for (const scheduler::WorkerView& worker : workers) {
    int64_t& largest = kinds[worker.pool][worker.kind];
    if (worker.accepts) largest = std::max(largest, worker.slots);
  }
  for (const auto& [name, job] : jobs_.all()) {
    if (job.state == v1::QUEUED || job.state == v1::RESTARTING) snapshot.waiting.push_back(AsWaiting(job, kinds));
  }
  if (snapshot.waiting.empty()) return {};
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, lease] : book_.all()) {
      scheduler::RunningJob running{.name = name, .slots = {{lease.worker, lease.slots}}};
      const ActiveJob* const job = jobs_.Find(name);
      if (job != nullptr && job->time_left) running.expected_end = now + *job->time_left;  // of one that starts: the earliest
      snapshot.running.push_back(std::move(running));
    }
  }
  const scheduler::Decision decision = scheduler::Schedule(now, snapshot);
  std::vector<ToPlan> moves;
  for (const scheduler::Grant& grant : decision.grants) {
    const ActiveJob& job = *jobs_.Find(grant.job);
    if (BacksOff(job, waits)) {
      decide_at_us_ = std::min(decide_at_us_, job.not_before_us);
      continue;
    }
    auto move = Replan(grant, *offers);
    if (move) {
      moves.push_back(*std::move(move));
    } else {
      GrantLease(grant);
    }
  }
  for (const scheduler::Wait& wait : decision.waits) {
    const ActiveJob& job = *jobs_.Find(wait.job);
    std::string reason = wait.text;
    const bool refused = wait.why == scheduler::Wait::Why::kNoSuchWorker && refusals_.count(wait.job) > 0;
    if (wait.why == scheduler::Wait::Why::kTooLarge || refused) absl::StrAppend(&reason, "; ", TooLargeText(job, offers));
    // What has befallen a restarting job stays its reason.
    if (job.state == v1::RESTARTING) reason = absl::StrCat(job.reason, "; ", reason);
    (*waits)[wait.job] = {job.version, std::move(reason), wait.position};
  }
  return moves;
}

// Its slots are kept for it meanwhile: failures of its trainers cost a job its time, and not its place.
bool Controller::BacksOff(const ActiveJob& job, WaitReasons::Waits* waits) const {
  if (BackOffLeft(job.not_before_us, options_.now_us()) == absl::ZeroDuration()) return false;
  const std::string until = absl::FormatTime("%H:%M:%S", absl::FromUnixMicros(job.not_before_us), absl::UTCTimeZone());
  (*waits)[job.name] = {job.version, absl::StrCat(job.reason, "; waits until ", until, " UTC"), 0};
  return true;
}

// The lease is durable before the agent hears of it.
void Controller::GrantLease(const scheduler::Grant& grant) {
  const auto planned = planned_.find(grant.job);
  {
    // Since the decision, an agent of other facts may have connected under the worker's name.
    const MutexLock lock(mutex_);
    if (planned != planned_.end() && SlotKind(workers_.at(grant.worker).facts) != planned->second.kind) return;
  }
  v1::Job job;
  v1::Attempt attempt;
  v1::ToAgent message;
  bool none_is_whole = false;
  const int64_t now_us = options_.now_us();
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
    ASSIGN_OR_RETURN(auto stored, transaction.GetJob(grant.job));
    if (!stored) return absl::NotFoundError(grant.job);
    job = *stored;
    ASSIGN_OR_RETURN(const auto from, FindResumePoint(transaction, job));
    effects->changed_jobs.push_back(job.name());
    none_is_whole = from.NoneIsWhole();
    // Since it was queued, another retry of the same job has found them damaged.
    if (none_is_whole) return FailAsNoneIsWhole(transaction, &job, from, "", now_us);
    job.clear_not_before_time_us();
    job.set_epoch(job.epoch() + 1);
    job.set_attempts(job.attempts() + 1);
    attempt = AttemptOf(job, grant, now_us);
    v1::StartAttempt start;
    if (from.checkpoint) {
      attempt.set_resume_step(from.checkpoint->step());
      start.set_resume_step(from.checkpoint->step());
      start.set_resume_directory(from.checkpoint->directory());
      start.set_take_back(from.checkpoint->take_back());
    }
    Describe(job, attempt, &start);
    *message.mutable_start() = std::move(start);
    RETURN_IF_ERROR(transaction.PutAttempt(job.name(), attempt));
    return Move(transaction, &job, v1::LEASED, SlotsText(grant.slots, grant.worker, job.spec().resources()), now_us);
  });
  if (!status.ok()) return LogWarning(absl::StrCat("no lease: ", status.message()), {.job = grant.job, .worker = grant.worker});
  if (none_is_whole) return LogWarning(absl::StrCat("no lease: ", job.reason()), {.job = grant.job});
  if (planned != planned_.end()) planned->second.moves = 0;
  if (options_.metrics != nullptr) options_.metrics->Lease();
  Lease lease{.job = job.name(),
              .epoch = job.epoch(),
              .worker = grant.worker,
              .slots = grant.slots,
              .renewed = options_.steady(),
              .attempt = attempt.attempt()};
  LogInfo(absl::StrCat("leased: ", job.reason()), About(lease));
  {
    const MutexLock lock(mutex_);
    const WorkerEntry& worker = workers_.at(grant.worker);
    lease.told_session = worker.session;
    lease.instance = worker.facts.instance();
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
  if (!status.ok()) LogError(std::string(status.message()), About(lease));
}

}  // namespace legoai::server
