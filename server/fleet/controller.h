// The active part of the service: talks to agents, plans submitted jobs, gives slots to queued ones, ends leases that nobody
// renews. What must not be lost is in the store; here is what can be rebuilt: connections (agents.h), leases' ages
// (lease_book.h), planning under way (plans_under_way.h). gRPC-free.
//
// One thread of its own decides: it takes a snapshot of the parts, asks Reconcile() (reconcile.h) and carries out what it says.
// Agents' messages are handled on the threads that bring them. So what a decision rests on may have changed when it is carried
// out, and whoever carries it out looks again: a lease is given to a worker only as it was when it was put into the book.
// Thread-safe. Messages of one session must come in order, from one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
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
#include "server/fleet/offers.h"
#include "server/fleet/plans_under_way.h"
#include "server/fleet/reconcile.h"
#include "server/jobs/notifier.h"
#include "server/metrics/log.h"
#include "server/metrics/registry.h"
#include "server/store/store.h"

namespace legoai::server {

struct ControllerOptions {
  absl::Duration lease_ttl = absl::Seconds(15);          // without a heartbeat; then the slots are free and the job restarts
  absl::Duration heartbeat_interval = absl::Seconds(2);  // told to agents
  absl::Duration replan_grace = absl::Seconds(30);  // how long a job waits for slots that are gone before it is planned for fewer
  absl::Duration forget_workers = absl::Hours(168);  // how long one that is lost stays listed
  std::function<std::unique_ptr<planner::Estimator>()> make_estimator;
  std::function<int64_t()> now_us;         // microseconds UTC
  std::function<absl::Duration()> steady;  // monotonic
  Metrics* metrics = nullptr;              // not owned; may be null
};

v1::PlanningProgress ProgressOf(const planner::PlanProgress& progress);

// What wakes the thread that decides. Thread-safe.
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
  // Nobody waits from now on.
  void End() {
    {
      const MutexLock lock(mutex_);
      ended_ = true;
    }
    changed_.NotifyAll();
  }
  // Both give false at the end. Sleeps until `time`, rung or not; waits for a ring, also an earlier one, at most until `time`.
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

  // Loads what the store has: leases, workers, plans that were under way. Call once, before anything else.
  absl::Status Begin();

  // An agent's stream. The answer to Hello is the session, a positive number, or why the agent is refused.
  absl::StatusOr<uint64_t> Connect(const v1::Hello& hello, AgentLink* link);
  void Heartbeat(uint64_t session, const v1::Heartbeat& heartbeat);  // in memory only: quick
  // Blocks until durable, then acknowledges.
  void Telemetry(uint64_t session, const std::vector<v1::Telemetry>& facts);
  void CommitRequest(uint64_t session, const v1::CommitRequest& request);
  void Goodbye(uint64_t session);
  void Disconnected(uint64_t session);  // afterwards `link` is not used any more

  std::vector<v1::Worker> Workers() const override;
  absl::StatusOr<v1::Worker> Drain(const std::string& worker, bool undo) override;
  void JobChanged(const std::string& job) override;
  bool DescribeWait(v1::Job* job) const override;
  absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request,
                                      const std::function<void(const v1::PlanningProgress&)>& progress,
                                      const std::function<bool()>& cancel) override;
  absl::StatusOr<v1::Estimate> Simulate(const v1::SimRequest& request, const std::function<bool()>& cancel) override;

 private:
  // controller.cc: the loop, and what every part uses.
  void Work();
  void Step();
  void CarryOut(Reconciliation decision);
  static LogFields About(const Lease& lease);                                                  // valid as long as it
  absl::Status Write(const std::function<absl::Status(store::Transaction&, Effects*)>& work);  // and what follows from it
  void Apply(const Effects& effects);
  // Changes the job as it was seen. False, and nothing is done, where it is another by now: the next look sees that.
  absl::StatusOr<bool> ChangeJob(const ActiveJob& seen, const std::function<absl::Status(store::Transaction&, v1::Job*)>& change);
  std::vector<scheduler::WorkerView> WorkerViews() const;

  // controller_agents.cc: what agents say, and what follows from their coming and going.
  void LogRefusal(const std::string& reason, const LogFields& about);  // of the worker of `about`
  void JudgeLeases(uint64_t session, int64_t durable);
  void ForgetWorkers();
  std::vector<std::string> LongLost() const;  // names of workers without leases
  v1::Worker WithLeases(v1::Worker worker, const std::vector<Lease>& leases) const;

  // controller_leases.cc: grants, expiry, stops.
  void ExpireLeases();
  void StopCancelled();
  void GrantLease(const scheduler::Grant& grant);
  absl::StatusOr<std::optional<v1::StartAttempt>> StoreLease(const scheduler::Grant& grant, v1::Job* job);
  void LoseLease(const Lease& lease, const std::string& reason);

  // controller_planning.cc
  void StorePlans();
  absl::Status StorePlan(const PlansUnderWay::Ended& plan);
  bool PlanJob(const ToPlan& next);

  const ControllerOptions options_;
  store::Store* const store_;
  Notifier* const notifier_;

  // Parts with a mutex each, held by none of them while it calls another.
  Agents agents_;
  LeaseBook book_;
  PlansUnderWay plans_;  // every job in planning has one
  ActiveJobs jobs_;      // all but Changed() is the deciding thread's
  WaitReasons wait_reasons_;
  Bell bell_;
  Mutex facts_mutex_;  // held while a worker's facts are read, stored and taken over; before those of the parts

  // Of the deciding thread alone.
  PlanningMemory memory_;
  absl::Duration decided_ = -absl::InfiniteDuration();
  int64_t decide_at_us_ = std::numeric_limits<int64_t>::max();  // when the first job that would have slots may have them
  std::vector<scheduler::WorkerView> decided_workers_;
  absl::Duration store_plans_after_ = -absl::InfiniteDuration();
  absl::Duration forget_after_ = -absl::InfiniteDuration();                          // the next look for workers to be forgotten
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();  // at leases
  bool stood_before_ = false;                                                        // the look before that came late, too

  std::unique_ptr<Planning> planning_;
  std::thread thread_;
};

}  // namespace legoai::server
