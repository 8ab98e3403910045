// The active part of the service: talks to agents, plans submitted jobs, gives slots to queued ones, ends expired leases. Durable
// state is in the store; the controller holds what can be rebuilt: connections (agents.h), ages of leases (lease_book.h), running
// plans (plans_under_way.h). gRPC-free.
//
// One dedicated thread decides: it takes a snapshot of the parts, calls Reconcile() (reconcile.h) and carries out the result.
// Agents' messages are handled on the threads that deliver them, so the basis of a decision may have changed when it is carried
// out, and is checked again: a lease is given to a worker only if the worker is as it was when the lease was entered in the book.
// Thread-safe. Messages of one session must come in order, from one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "planner/plan.h"
#include "proto/legoai/v1/worker_service.pb.h"
#include "scheduler/scheduler.h"
#include "server/fleet/active_jobs.h"
#include "server/fleet/agents.h"
#include "server/fleet/attempt_facts.h"
#include "server/fleet/fleet.h"
#include "server/fleet/lease_book.h"
#include "server/fleet/known_plans.h"
#include "server/fleet/offers.h"
#include "server/fleet/plan_cache.h"
#include "server/fleet/planning.h"
#include "server/fleet/plans_under_way.h"
#include "server/fleet/reconcile.h"
#include "server/jobs/notifier.h"
#include "server/jobs/stop.h"
#include "server/metrics/log.h"
#include "server/metrics/registry.h"
#include "server/store/store.h"

namespace legoai::server {

struct ControllerOptions {
  absl::Duration lease_ttl = absl::Seconds(15);          // without a heartbeat; then the slots are freed and the job restarts
  absl::Duration heartbeat_interval = absl::Seconds(2);  // sent to agents
  absl::Duration replan_grace = absl::Seconds(30);       // how long a job waits for lost slots before it is planned for fewer
  absl::Duration forget_workers = absl::Hours(168);      // how long a lost worker stays listed
  bool preempt = false;                                  // jobs of smaller priority save and make room for the first of a queue
  absl::Duration preempt_grace = kDefaultStopGrace;      // how long they may take to save
  // As Simulators takes them: what makes one estimate at a time, and how many of them there are.
  std::function<std::unique_ptr<planner::Estimator>()> make_estimator;
  int64_t simulators = 1;
  std::string planned_by = PlannedBy();  // plan_cache.h
  bool reuse_plans = true;               // false: every job is planned, whatever was planned before
  std::function<int64_t()> now_us;         // microseconds UTC
  std::function<absl::Duration()> steady;  // monotonic
  Metrics* metrics = nullptr;              // not owned; may be null
};

v1::PlanningProgress ProgressOf(const planner::PlanProgress& progress);

// Wakes the deciding thread. Thread-safe.
class Bell {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void Ring() {
    {
      const MutexLock lock(mutex_);
      rung_ = true;
    }
    changed_.NotifyAll();
  }
  // Ends all current and future waits.
  void End() {
    {
      const MutexLock lock(mutex_);
      ended_ = true;
    }
    changed_.NotifyAll();
  }
  // Both return false after End(). SleepUntil ignores rings; WaitUntil returns at a ring, even an earlier one, or at `time`.
  bool SleepUntil(Time time) {
    MutexLock lock(mutex_);
    while (!ended_ && changed_.WaitUntil(lock, time)) {
    }
    return !ended_;
  }
  bool WaitUntil(Time time) {
    MutexLock lock(mutex_);
    while (!rung_ && !ended_ && changed_.WaitUntil(lock, time)) {
    }
    rung_ = false;
    return !ended_;
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool rung_ ABSL_GUARDED_BY(mutex_) = false, ended_ ABSL_GUARDED_BY(mutex_) = false;
};

class Controller : public Fleet {
 public:
  // Neither store nor notifier is owned; both must outlive it.
  Controller(ControllerOptions options, store::Store* store, Notifier* notifier);
  ~Controller() override;  // ends its threads; running trainers continue

  // Loads leases, workers and unfinished plans from the store. Call once, before anything else.
  absl::Status Begin();

  // An agent's stream. Connect returns the session, a positive number, or why the agent is refused.
  absl::StatusOr<uint64_t> Connect(const v1::Hello& hello, AgentLink* link);
  void Heartbeat(uint64_t session, const v1::Heartbeat& heartbeat);  // in memory only, hence fast
  // Blocks until durable, then acknowledges.
  void Telemetry(uint64_t session, const std::vector<v1::Telemetry>& facts);
  void CommitRequest(uint64_t session, const v1::CommitRequest& request);
  void Goodbye(uint64_t session);
  void Disconnected(uint64_t session);  // `link` is not used afterwards
  // Another server leads, or will: every agent is told so by `why`, with which its stream ends, and looks for that one.
  void Resign(const absl::Status& why) { agents_.EndAll(why); }

  std::vector<v1::Worker> Workers() const override;
  void VisitWorkers(absl::FunctionRef<bool(const v1::Worker& facts, bool connected)> visit) const override {
    agents_.Visit(visit);
  }
  absl::StatusOr<v1::Worker> Drain(const v1::DrainWorkerRequest& request) override;
  absl::StatusOr<v1::Worker> CheckWorker(const v1::CheckWorkerRequest& request) override;
  void JobChanged(const std::string& job) override;
  bool DescribeWait(v1::Job* job) const override;
  absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request,
                                      const std::function<void(const v1::PlanningProgress&)>& progress,
                                      const std::function<bool()>& cancel) override;
  absl::StatusOr<v1::Estimate> Simulate(const v1::SimRequest& request, const std::function<bool()>& cancel) override;

 private:
  // controller.cc: the loop, and shared functions.
  void Work();
  void Step();
  void CarryOut(Reconciliation decision);
  static LogFields About(const Lease& lease);                                                  // valid as long as the lease
  absl::Status Write(const std::function<absl::Status(store::Transaction&, Effects*)>& work);  // and applies the effects
  void Apply(const Effects& effects);
  // Changes the job if it is still as `seen`. False, and nothing is done, if it has changed: the next decision sees that.
  absl::StatusOr<bool> ChangeJob(const ActiveJob& seen, const std::function<absl::Status(store::Transaction&, v1::Job*)>& change);
  std::vector<scheduler::WorkerView> WorkerViews() const;

  // controller_agents.cc: messages of agents, their connections and disconnections.
  void TakeHealth(uint64_t session, const std::string& worker, const v1::WorkerHealth& health);
  void TellFaults(const std::string& worker, const std::vector<v1::SlotFault>& faults);
  void LogRefusal(const std::string& reason, const LogFields& about);  // of the worker in `about`
  bool IsTorn(const v1::LeaseId& lease, const std::string& speaker) const;
  void JudgeLeases(uint64_t session, int64_t durable);
  void ForgetWorkers();
  std::vector<std::string> LongLost() const;  // workers without leases, by name
  v1::Worker WithLeases(v1::Worker worker, const std::vector<Lease>& leases) const;

  // controller_leases.cc: grants, expiry.
  void ExpireLeases();
  void GrantLease(const scheduler::Grant& grant, bool outside_domain);
  std::vector<Lease> PartsOf(const v1::Attempt& attempt, const std::string& job) const;  // renewed now
  // Starts of its workers, in the order of ranks.
  using Starts = std::vector<v1::StartAttempt>;
  absl::StatusOr<Starts> StoreLease(const scheduler::Grant& grant, bool outside_domain, v1::Job* job, v1::Attempt* attempt);
  bool CanServe(const scheduler::Grant& grant) const;
  std::optional<std::string> SendStart(const Lease& part, const v1::StartAttempt& start);
  void LoseLease(const Lease& lease, const std::string& reason);

  // controller_stops.cc: trainers that are to stop, for good or to be moved.
  void MoveJobsOfDraining();
  void MakeRoom(const std::vector<ToStop>& to_stop);
  void MoveJob(const Lease& lease, const std::string& why, absl::Duration grace);
  void SendStops();

  // controller_planning.cc
  void StorePlans();
  absl::Status StorePlan(const PlansUnderWay::Ended& plan);
  absl::Status TakePlan(store::Transaction& transaction, const v1::Cluster& cluster,
                        const absl::StatusOr<v1::PlanResult>& result, v1::Job* job, absl::Status* passing) const;
  void Remember(const std::string& job, const v1::Cluster& cluster, const absl::Status& passing);
  void PlanInTurn(const std::vector<ToPlan>& to_plan, WaitReasons::Waits* waits);
  void RefuseCluster(const ToPlan& next, const absl::Status& why);
  bool TakeKnown(const ToPlan& next, const v1::Cluster& cluster, KnownPlans* known);
  bool PlanJob(const ToPlan& next, const v1::Cluster& cluster);

  const ControllerOptions options_;
  store::Store* const store_;
  Notifier* const notifier_;

  // Each part has a mutex, which it does not hold while it calls another part.
  Agents agents_;
  LeaseBook book_;
  PlansUnderWay plans_;  // has an entry for every job in planning
  ActiveJobs jobs_;      // only Changed() is for other threads
  WaitReasons wait_reasons_;
  Bell bell_;
  Mutex facts_mutex_;  // held while a worker's facts are read, stored and applied; locked before those of the parts

  // Only for the deciding thread.
  PlanningMemory memory_;
  std::map<std::string, uint64_t> turns_;  // of the planner, by project: the latest
  uint64_t turn_ = 0;
  absl::Duration decided_ = -absl::InfiniteDuration();
  int64_t decide_at_us_ = std::numeric_limits<int64_t>::max();  // when the next back-off of a job with slots ends
  std::vector<scheduler::WorkerView> decided_workers_;
  absl::Duration store_plans_after_ = -absl::InfiniteDuration();
  absl::Duration forget_after_ = -absl::InfiniteDuration();                          // the next check for workers to forget
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();  // at the leases
  bool stood_before_ = false;                                                        // the previous check was late too

  std::unique_ptr<Planning> planning_;
  std::thread thread_;
};

}  // namespace legoai::server
