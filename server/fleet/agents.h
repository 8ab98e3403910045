// The agents that are connected, and the workers that they speak for: sessions, facts, when each was heard last. A worker has one
// session at a time, that of the agent which connected last; what comes over an older one is told apart by Speaker::speaks.
//
// Thread-safe. It has one mutex, knows no other part, and is called by them while they hold nothing; links are sent to under the
// mutex, for they queue and return at once. Which leases a worker holds is the lease book's. gRPC-free.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/worker_service.pb.h"
#include "scheduler/scheduler.h"

namespace legoai::server {

// The way to one agent. Send() queues and returns at once; thread-safe.
class AgentLink {
 public:
  virtual ~AgentLink() = default;
  virtual void Send(const v1::ToAgent& message) = 0;
  // Ends the stream with this status. Disconnected() is called as after any other end.
  virtual void Close(const absl::Status& status) = 0;
};

struct AgentsOptions {
  absl::Duration lease_ttl, heartbeat_interval, forget_workers;  // as the controller's
  std::function<int64_t()> now_us;                               // microseconds UTC
  std::function<absl::Duration()> steady;                        // monotonic
};

class Agents {
 public:
  explicit Agents(AgentsOptions options) : options_(std::move(options)) {}

  // Workers that the store knows; none is connected yet.
  void Know(const std::vector<v1::Worker>& workers);

  // ---- Sessions ----

  // Of the worker whose agent says hello: what it says, and what is known of it already. Errors: another worker has its instance,
  // or it is connected from another host (AlreadyExists).
  absl::StatusOr<v1::Worker> FactsOf(const v1::Hello& hello) const;
  // Begins the worker's session, a positive number, welcomes the agent and ends the session before.
  uint64_t Open(const v1::Worker& facts, const v1::Hello& hello, int64_t acknowledged_telemetry, AgentLink* link);
  // Afterwards its link is not used any more. Returns the worker; nothing for a session that is over.
  std::optional<std::string> Close(uint64_t session);

  // Who speaks over a session.
  struct Speaker {
    std::string worker, instance, runs;
    bool speaks = false;  // no later agent of the worker has connected
    bool broken = false;  // something could not be stored: what comes after it is not taken, but sent again
  };
  std::optional<Speaker> Find(uint64_t session) const;
  // A heartbeat of the worker's own session: nothing otherwise. `dropped`: metrics that were dropped since the last one.
  std::optional<Speaker> Heard(uint64_t session, const v1::Heartbeat& heartbeat, int64_t* dropped);
  // False: the session is over.
  bool Send(uint64_t session, const v1::ToAgent& message);
  // Nothing that comes over it is taken any more, and its link is closed.
  void Break(uint64_t session, const absl::Status& why);

  // An agent that has come back lists the leases whose trainers run there. Once, when all telemetry that it had is durable: which
  // worker's leases are to be judged by them.
  struct Return {
    std::string worker;
    std::set<std::pair<std::string, int64_t>> leases;  // job and epoch
  };
  std::optional<Return> TakeReturn(uint64_t session, int64_t durable_telemetry);

  // ---- Workers ----

  // Its agent stops what runs there: it gets nothing more in this session. Of a session: gives the worker, if it is its own.
  std::optional<std::string> Leave(uint64_t session);
  void LeaveWorker(const std::string& worker);
  // Counts messages of a worker that were not taken; 0 for one that is not known.
  int64_t CountRefusal(const std::string& worker);

  // What a lease is given to.
  struct Place {
    uint64_t session = 0;  // 0: not connected
    std::string instance, kind;
    bool leaves = false;
    bool operator==(const Place&) const = default;
  };
  std::optional<Place> PlaceOf(const std::string& worker) const;
  // Sends it if the worker still is as `place` says. Otherwise nothing is sent, and what it is now is given.
  std::optional<Place> SendIfStill(const std::string& worker, const Place& place, const v1::ToAgent& message);

  // With state, connection and use, without leases.
  std::vector<v1::Worker> List() const;
  std::optional<v1::Worker> FindWorker(const std::string& worker) const;
  std::optional<v1::Worker> StoredFacts(const std::string& worker) const;  // as the store has it
  // Tells its agent, too.
  void SetDraining(const std::string& worker, bool draining);
  // As if nothing were leased there.
  std::vector<scheduler::WorkerView> Views() const;

  // Nobody could be heard for that long: the server itself did not run.
  void ExtendAll(absl::Duration pause);
  // Not connected, and not heard of for long.
  std::vector<std::string> LongLost() const;
  void Forget(const std::string& worker);

 private:
  struct Session {
    std::string worker, instance;
    AgentLink* link = nullptr;
    std::set<std::pair<std::string, int64_t>> leases = {};  // whose trainers ran there when it connected
    int64_t return_after = 0;                               // this telemetry is durable
    bool returned = false, broken = false;
  };
  struct Entry {
    v1::Worker facts;
    uint64_t session = 0;                             // 0: not connected
    absl::Duration heard;                             // the last time
    bool leaves = false;                              // it stops what runs there, and says goodbye
    int64_t refused = 0;                              // messages of its agents that were not taken
    std::optional<v1::WorkerUse> use = std::nullopt;  // of the machine, as this session's agent said last
  };

  bool Speaks(uint64_t id, const Session& session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Speaker SpeakerOf(uint64_t id, const Session& session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Place PlaceOfEntry(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Worker Shown(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AgentsOptions options_;
  mutable Mutex mutex_;
  uint64_t next_session_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Session> sessions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Entry> workers_ ABSL_GUARDED_BY(mutex_);  // by name
};

}  // namespace legoai::server
