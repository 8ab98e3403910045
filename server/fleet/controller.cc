#include "server/fleet/controller.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

// Expiry and waits that depend on time alone are looked at this often.
constexpr auto kLookInterval = std::chrono::milliseconds(250);

// What depends on time alone, such as the grace of a job whose slots are gone, is decided anew after so long.
constexpr absl::Duration kLongestWithoutDecision = absl::Seconds(2);

}  // namespace

v1::PlanningProgress ProgressOf(const planner::PlanProgress& progress) {
  v1::PlanningProgress proto;
  proto.set_space(progress.space);
  proto.set_to_capture(progress.to_capture);
  proto.set_captured(progress.captured);
  if (progress.best_step_seconds > 0) proto.set_best_step_seconds(progress.best_step_seconds);
  proto.set_elapsed_seconds(progress.elapsed_seconds);
  for (const v1::RankedRecipe& ranked : progress.best) *proto.add_best() = ranked;
  return proto;
}

Controller::Controller(ControllerOptions options, store::Store* store, Notifier* notifier)
    : options_(std::move(options)),
      store_(store),
      notifier_(notifier),
      agents_({.lease_ttl = options_.lease_ttl,
               .heartbeat_interval = options_.heartbeat_interval,
               .forget_workers = options_.forget_workers,
               .now_us = options_.now_us,
               .steady = options_.steady}),
      book_(options_.lease_ttl),
      jobs_(store) {}

Controller::~Controller() {
  plans_.End();
  bell_.End();
  if (thread_.joinable()) thread_.join();
  planning_.reset();  // its callbacks use the rest
}

std::vector<Lease> Controller::PartsOf(const v1::Attempt& attempt, const std::string& job) const {
  std::vector<Lease> parts;
  for (const v1::Placement& placement : attempt.placements()) {
    const auto place = agents_.PlaceOf(placement.worker());
    parts.push_back({.job = job,
                     .epoch = attempt.epoch(),
                     .worker = placement.worker(),
                     .slots = placement.slots(),
                     .renewed = options_.steady(),
                     .attempt = attempt.attempt(),
                     .instance = place ? place->instance : "",
                     .first_rank = placement.first_rank()});
  }
  return parts;
}

absl::Status Controller::Begin() {
  std::vector<v1::Job> jobs;
  std::vector<v1::Worker> workers;
  std::map<std::string, v1::Attempt> attempts;
  const auto load = [&](store::ReadTransaction& read) -> absl::Status {
    ASSIGN_OR_RETURN(auto active, read.JobsInStates(ActiveStates()));
    ASSIGN_OR_RETURN(auto known, read.ListWorkers());
    jobs = std::move(active), workers = std::move(known);
    for (const v1::Job& job : jobs) {
      if (job.has_world_size()) {
        ASSIGN_OR_RETURN(const auto plan, read.GetPlan(job.name()));
        if (plan) memory_.planned[job.name()] = {.kind = KindOf(plan->cluster()), .in_domain = IsInDomain(plan->cluster())};
      }
      if (!HoldsLease(job.state())) continue;
      ASSIGN_OR_RETURN(auto of_job, read.ListAttempts(job.name()));
      if (!of_job.empty()) attempts[job.name()] = of_job.back();
    }
    return absl::OkStatus();
  };
  absl::Status status = store_->Read(load);
  if (absl::IsUnavailable(status)) status = store_->Read(load);  // a database that went in the middle of it
  if (!status.ok()) return status;
  agents_.Know(workers);
  for (const auto& [job, attempt] : attempts) {
    book_.Grant(PartsOf(attempt, job));
  }
  // A plan that was under way is made anew.
  status = store_->Write([&](store::Transaction& transaction) -> absl::Status {
    for (v1::Job job : jobs) {
      if (job.state() != v1::PLANNING) continue;
      jobs_.Changed(job.name());
      const bool restarts = job.attempts() > 0;
      RETURN_IF_ERROR(Move(transaction, &job, restarts ? v1::RESTARTING : v1::SUBMITTED,
                           "the server was started anew while it planned", options_.now_us()));
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  jobs_.Begin(jobs);
  planning_ = std::make_unique<Planning>(options_.make_estimator, options_.simulators);
  thread_ = std::thread([this] { Work(); });
  return absl::OkStatus();
}

// At most half of the time it looks: however often it is woken, the rest of the server has a core for itself.
void Controller::Work() {
  auto took = std::chrono::steady_clock::duration::zero();
  while (true) {
    const auto rest = std::min<std::chrono::steady_clock::duration>(took, kLookInterval);
    if (!bell_.SleepUntil(std::chrono::steady_clock::now() + rest)) return;
    if (!bell_.WaitUntil(std::chrono::steady_clock::now() + kLookInterval)) return;
    const auto begun = std::chrono::steady_clock::now();
    Step();
    took = std::chrono::steady_clock::now() - begun;
  }
}

void Controller::JobChanged(const std::string& job) {
  jobs_.Changed(job);
  bell_.Ring();
}

bool Controller::DescribeWait(v1::Job* job) const { return wait_reasons_.Describe(job); }

void Controller::Step() {
  ExpireLeases();
  ForgetWorkers();
  StorePlans();
  MoveJobsOfDraining();
  const absl::StatusOr<bool> moved = jobs_.Refresh();
  if (!moved.ok()) return LogError(absl::StrCat("jobs cannot be read: ", moved.status().message()));
  SendStops();
  std::vector<scheduler::WorkerView> workers = WorkerViews();
  const absl::Duration now = options_.steady();
  const bool due = options_.now_us() >= decide_at_us_ || now - decided_ >= kLongestWithoutDecision;
  if (!*moved && !due && workers == decided_workers_) return;
  decided_ = now;
  Offers offers(Workers());
  Reconciliation decision = Reconcile({.now_us = options_.now_us(),
                                       .now = now,
                                       .replan_grace = options_.replan_grace,
                                       .jobs = &jobs_,
                                       .workers = workers,
                                       .leases = book_.All(),
                                       .preempts = options_.preempt},
                                      &offers, &memory_);
  decide_at_us_ = decision.decide_at_us;
  decided_workers_ = std::move(workers);
  CarryOut(std::move(decision));
}

void Controller::CarryOut(Reconciliation decision) {
  for (const scheduler::Grant& grant : decision.grants) GrantLease(grant, decision.outside_domain.count(grant.job) > 0);
  PlanInTurn(decision.to_plan, &decision.waits);
  MakeRoom(decision.to_stop);
  notifier_->JobsChanged(wait_reasons_.Replace(std::move(decision.waits)));
}

// The book is asked before the agents: what a leaving worker's jobs have freed is seen only with a worker that leaves (Apply).
std::vector<scheduler::WorkerView> Controller::WorkerViews() const {
  std::map<std::string, int64_t> taken = plans_.KeptSlots();
  for (const Lease& lease : book_.All()) taken[lease.worker] += lease.slots;
  std::vector<scheduler::WorkerView> views = agents_.Views();
  for (scheduler::WorkerView& view : views) {
    for (int64_t* const slots : {&view.free, &view.checked}) *slots = std::max<int64_t>(0, *slots - taken[view.name]);
  }
  return views;
}

LogFields Controller::About(const Lease& lease) {
  return {.job = lease.job, .attempt = lease.attempt, .epoch = lease.epoch, .worker = lease.worker};
}

absl::Status Controller::Write(const std::function<absl::Status(store::Transaction&, Effects*)>& work) {
  Effects effects;
  const absl::Status status = store_->Write([&](store::Transaction& transaction) {
    effects = Effects();  // the function may be run more than once
    return work(transaction, &effects);
  });
  if (status.ok()) Apply(effects);
  return status;
}

void Controller::Apply(const Effects& effects) {
  for (const std::string& job : effects.changed_jobs) jobs_.Changed(job);
  for (int64_t i = 0; i < effects.lost_attempts && options_.metrics != nullptr; ++i) options_.metrics->AttemptLost();
  if (!effects.ended_leases.empty()) {
    for (const v1::LeaseId& lease : effects.ended_leases) {
      // Before its slots count as free: what was left to others shall not be given to it again.
      if (!effects.leaving.empty()) agents_.LeaveWorker(effects.leaving);
      book_.Release(lease.job(), lease.epoch());
    }
    notifier_->WorkersChanged();
    bell_.Ring();
  }
  for (const std::string& job : effects.changed_jobs) notifier_->JobChanged(job);
}

absl::StatusOr<bool> Controller::ChangeJob(const ActiveJob& seen,
                                           const std::function<absl::Status(store::Transaction&, v1::Job*)>& change) {
  bool changed = false;
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
    ASSIGN_OR_RETURN(auto job, transaction.GetJob(seen.name));
    changed = job && job->version() == seen.version;
    if (!changed) return absl::OkStatus();
    effects->changed_jobs.push_back(seen.name);
    return change(transaction, &*job);
  });
  if (!status.ok()) return status;
  return changed;
}

absl::StatusOr<v1::Estimate> Controller::Simulate(const v1::SimRequest& request, const std::function<bool()>& cancel) {
  return planning_->Simulate(request, cancel);
}

}  // namespace legoai::server
