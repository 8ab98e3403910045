// The living part of the service: hears agents, plans submitted jobs, gives slots to queued ones, ends leases that nobody renews.
// What must not be lost is in the store; here is what can be asked anew: connections, leases' ages, planning under way.
// gRPC-free.
//
// One thread of its own decides (planning, scheduling, expiry); agents' messages are handled on the threads that bring them.
// Thread-safe. Messages of one session must come in order, from one thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
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
#include "server/fleet/attempt_facts.h"
#include "server/fleet/fleet.h"
#include "server/fleet/lease_book.h"
#include "server/fleet/offers.h"
#include "server/fleet/planning.h"
#include "server/fleet/wait_reasons.h"
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

// The way to one agent. Send() queues and returns at once; thread-safe.
class AgentLink {
 public:
  virtual ~AgentLink() = default;
  virtual void Send(const v1::ToAgent& message) = 0;
  // Ends the stream with this status. Disconnected() is called as after any other end.
  virtual void Close(const absl::Status& status) = 0;
};

class Controller : public Fleet {
 public:
  // Neither store nor notifier is owned; both must outlive it.
  Controller(ControllerOptions options, store::Store* store, Notifier* notifier);
  ~Controller() override;  // ends its threads; running trainers go on

  // Takes up what the store has: leases, workers, plans that were under way. Call once, before anything else.
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
  struct Session {
    std::string worker, instance;
    AgentLink* link = nullptr;
    std::set<std::pair<std::string, int64_t>> leases = {};  // whose trainers ran there when it connected
    int64_t judge_after = 0;  // once this telemetry is durable, leases that are not among them are lost
    bool judged = false;
    bool broken = false;  // something could not be stored: what comes after it is not taken, but sent again
  };
  struct WorkerEntry {
    v1::Worker facts;
    uint64_t session = 0;                             // 0: not connected
    absl::Duration heard;                             // the last time
    bool leaves = false;                              // it stops what runs there, and says goodbye
    int64_t refused = 0;                              // messages of its agents that were not taken
    std::optional<v1::WorkerUse> use = std::nullopt;  // of the machine, as this session's agent said last
  };
  struct PlanUnderWay {
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
    v1::Cluster cluster;
    std::string keeps;                                     // its slots on this worker are kept until it is stored; empty: on none
    std::optional<absl::StatusOr<v1::PlanResult>> result;  // once there is one, until it is stored
  };
  // Plans in vain of a job that has a recipe for other slots.
  struct Refusal {
    std::map<std::string, int64_t> tries;  // by name of the cluster
    std::string text;                      // of the last one
    bool Refuses(const std::string& cluster) const;
  };
  // What a job's recipe was chosen for, and how often that was changed since it last ran because other slots were free.
  struct Planned {
    std::string kind;
    int64_t moves = 0;
  };
  struct ToPlan {
    const ActiveJob* job = nullptr;
    const v1::Worker* worker = nullptr;  // for slots like its
    int64_t slots = 0;
    std::string because = {};  // "its slots are gone: ", of a job that has a recipe
    bool moves = false;        // those slots are free, and are kept for it
  };
  // Of the workers of each pool that accept jobs: the largest of each kind.
  using Kinds = std::map<std::string, std::map<std::string, int64_t>>;

  // controller.cc: the loop, and what every part uses.
  void Work();
  void Wake();
  void Step();
  static LogFields About(const Lease& lease);                                                  // valid as long as it
  absl::Status Write(const std::function<absl::Status(store::Transaction&, Effects*)>& work);  // and what follows from it
  void Apply(const Effects& effects);
  // Changes the job as it was seen. False, and nothing is done, where it is another by now: the next look sees that.
  absl::StatusOr<bool> ChangeJob(const ActiveJob& seen, const std::function<absl::Status(store::Transaction&, v1::Job*)>& change);
  static v1::PlanningProgress ToProto(const planner::PlanProgress& progress);

  // controller_agents.cc: sessions.
  absl::Status CheckHello(const v1::Hello& hello) const;
  absl::StatusOr<v1::Worker> NewFacts(const v1::Hello& hello) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(facts_mutex_);
  std::vector<v1::LeaseId> Revoked(const std::string& worker, const std::string& instance,
                                   const google::protobuf::RepeatedPtrField<v1::LeaseId>& leases)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Speaks(uint64_t session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // for its worker, which no later one does
  bool Holds(uint64_t session, const v1::LeaseId& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogRefusal(const std::string& reason, const LogFields& about);  // of the worker of `about`
  void JudgeLeases(uint64_t session, int64_t durable);
  void ForgetWorkers();
  std::vector<std::string> LongLost() const;  // names of workers
  void SendToWorker(const std::string& worker, const v1::ToAgent& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Worker Facts(const WorkerEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // controller_leases.cc: expiry, grants, stops.
  void ExpireLeases();
  void StopCancelled();
  std::vector<ToPlan> ScheduleJobs(const std::vector<scheduler::WorkerView>& workers, Offers* offers, WaitReasons::Waits* waits);
  scheduler::WaitingJob AsWaiting(const ActiveJob& job, const Kinds& kinds) const;
  std::optional<ToPlan> Replan(const scheduler::Grant& grant, const Offers& offers) const;
  bool BacksOff(const ActiveJob& job, WaitReasons::Waits* waits) const;
  void GrantLease(const scheduler::Grant& grant);
  void LeaveLease(const Lease& lease);
  std::vector<scheduler::WorkerView> WorkerViews() const;

  // controller_planning.cc
  void StorePlans();
  absl::Status StorePlan(const std::string& job, const v1::Cluster& cluster, const absl::StatusOr<v1::PlanResult>& result);
  void StartPlanning(std::vector<ToPlan> to_plan, Offers* offers, WaitReasons::Waits* waits);
  bool PlannerIsBusy();
  bool MayPlanForFewer(const ActiveJob& job, Offers* offers);
  std::string TooLargeText(const ActiveJob& job, Offers* offers) const;
  bool PlanJob(const ToPlan& next);

  const ControllerOptions options_;
  store::Store* const store_;
  Notifier* const notifier_;

  Mutex facts_mutex_;  // held while a worker's facts are read, stored and taken over; before mutex_
  mutable Mutex mutex_;
  Condition woken_;
  bool wake_ ABSL_GUARDED_BY(mutex_) = false, ending_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_session_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Session> sessions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, WorkerEntry> workers_ ABSL_GUARDED_BY(mutex_);  // by name
  LeaseBook book_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, PlanUnderWay> plans_ ABSL_GUARDED_BY(mutex_);  // by job; every job in planning has one

  ActiveJobs jobs_;  // all but Changed() is the deciding thread's
  WaitReasons wait_reasons_;

  // Of the deciding thread alone.
  absl::Duration decided_ = -absl::InfiniteDuration();
  int64_t decide_at_us_ = std::numeric_limits<int64_t>::max();  // when the first job that would have slots may have them
  std::vector<scheduler::WorkerView> decided_workers_;
  std::map<std::string, absl::Duration> too_large_since_;  // of a waiting job: that its gang is larger than any worker
  std::map<std::string, Refusal> refusals_;                // by job
  std::map<std::string, Planned> planned_;                 // by job, of those that have a recipe
  absl::Duration store_plans_after_ = -absl::InfiniteDuration();
  absl::Duration forget_after_ = -absl::InfiniteDuration();                          // the next look for workers to be forgotten
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();  // at leases
  bool stood_before_ = false;                                                        // the look before that came late, too

  std::unique_ptr<Planning> planning_;
  std::thread thread_;
};

}  // namespace legoai::server
