// Several servers over one PostgreSQL, of which one leads. The one that leads has a reign (reign.h); the others follow: they read
// the database, pass on what only the leader can answer (leader_client.h), and watch it. A leader that was killed loses its lock
// at once; one that stands still, or has lost the database, does not renew within the lease, and another takes over. What the old
// one then wakes up to is a term that is over: all that it writes is refused, and it follows.
//
// Over SQLite, whose file one process locks, this server leads from Start() to the end.
//
// Thread-safe. As a Fleet and as a Store it is what the handlers of calls need, whoever leads.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "server/fleet/controller.h"
#include "server/fleet/fleet.h"
#include "server/jobs/notifier.h"
#include "server/leader/reign.h"
#include "server/store/open_store.h"
#include "server/store/postgres_follower.h"

namespace legoai::server {

struct ElectionOptions {
  std::string store_url;
  store::SqliteOptions sqlite;
  store::PostgresOptions postgres;  // on_leads, on_superseded and other_server are not used
  std::string address;              // of this server's gRPC, as others reach it; empty: unknown
  // Without a write of the leader's: then it leads no more. It writes five times as often, and followers look as often.
  absl::Duration lease = absl::Seconds(5);
  ControllerOptions controller;
  // Called with the store of each reign before it begins, on any thread. May be null. An error before Start() has returned is
  // Start()'s; later it is logged, and this server leads all the same.
  std::function<absl::Status(store::Store&)> before_reign;
  // Called once, when this server can neither lead nor follow any more: the store is of a newer release, damaged, closed to it.
  std::function<void(const absl::Status&)> on_end;
};

class Election : public Fleet, public store::Store {
 public:
  // `notifier` is not owned.
  Election(ElectionOptions options, Notifier* notifier);
  ~Election() override;

  // Opens the store; blocks until this server leads, or sees the one that does, or finds the database away: then it looks for it
  // again and again, as when that goes later, and Ready() says so. Once, before anything else. Errors: those of OpenStore, but
  // for a PostgreSQL that is away; Cancelled where the process was told to end meanwhile.
  absl::Status Start();

  // Null: this server does not lead. What is returned may be used as long as it is held; its writes are refused once the reign is
  // over.
  std::shared_ptr<Reign> reign() const;
  // For the streams of agents: NotLeaderError where this server does not lead.
  absl::StatusOr<std::shared_ptr<Controller>> LeadingController() const;
  // "leads" or "follows", with whom and the term; Unavailable where the database was not seen of late, or nobody leads.
  absl::StatusOr<std::string> Ready() const;

  Leadership Leading() const override;
  std::vector<v1::Worker> Workers() const override;
  void VisitWorkers(absl::FunctionRef<bool(const v1::Worker& facts, bool connected)> visit) const override;
  absl::StatusOr<v1::Worker> Drain(const v1::DrainWorkerRequest& request) override;
  absl::StatusOr<v1::Worker> CheckWorker(const v1::CheckWorkerRequest& request) override;
  void JobChanged(const std::string& job) override;
  bool DescribeWait(v1::Job* job) const override;
  absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request,
                                      const std::function<void(const v1::PlanningProgress&)>& progress,
                                      const std::function<bool()>& cancel) override;
  absl::StatusOr<v1::Estimate> Simulate(const v1::SimRequest& request, const std::function<bool()>& cancel) override;

  absl::Status Write(const std::function<absl::Status(store::Transaction&)>& work) override;
  absl::Status Read(const std::function<absl::Status(store::ReadTransaction&)>& work) override;
  std::string Backend() const override;
  int64_t SchemaVersion() const override;

 private:
  using Clock = std::chrono::steady_clock;
  using Sight = store::PostgresFollower::Sight;

  absl::Status LeadAlone();
  void Work();
  std::optional<std::string> WhyNoLonger(const Reign& reign) const;  // nothing: it goes on
  void Follow();
  bool IsNamesake(const Sight& sight) const;
  // What is known of the leader from now on; `reign`: where this server is the one.
  void See(const Sight& sight, std::shared_ptr<Reign> reign);
  void Lead();
  absl::Status BeginReign(Reign& reign);
  void StepDown(const std::string& why);
  void GiveUp(const absl::Status& why);
  void Retire(std::shared_ptr<Reign> reign);
  absl::Status NotLeader() const;
  void NotSeen(const absl::Status& why);
  void Tell(const absl::Status& trouble);
  bool has_started() const;

  const ElectionOptions options_;
  Notifier* const notifier_;
  std::unique_ptr<store::PostgresFollower> follower_;  // null over SQLite

  mutable Mutex mutex_;
  mutable Condition known_;
  std::shared_ptr<Reign> reign_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Leader> leader_ ABSL_GUARDED_BY(mutex_);  // as last seen; nothing: nobody leads
  Clock::time_point seen_ ABSL_GUARDED_BY(mutex_);            // when the database was last seen
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  bool away_ ABSL_GUARDED_BY(mutex_) = false;     // the database was, when it was looked for
  bool started_ ABSL_GUARDED_BY(mutex_) = false;  // Start() has returned

  struct Retired {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> is_gone;
  };

  // Of the thread alone.
  std::optional<store::PostgresFollower::Leader> last_;  // as the row was when it last changed
  Clock::time_point changed_;                            // when that was seen
  int looks_alike_ = 0;                                  // since
  int64_t led_term_ = 0;                                 // this server's latest
  std::string told_;                                     // trouble that is not told again at once
  Clock::time_point told_at_;
  std::list<Retired> retiring_;
  Bell bell_;
  std::thread thread_;
};

}  // namespace legoai::server
