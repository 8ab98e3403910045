// The connected agents and their workers: sessions, facts, when each was last heard. A worker has one session at a time, that of
// the agent that connected last; Speaker::speaks distinguishes messages of older ones.
//
// Thread-safe. It has one mutex, depends on no other part, and is called without other locks held; messages are sent under the
// mutex, because links queue them and return at once. The lease book knows which leases a worker holds. gRPC-free.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/worker_service.pb.h"
#include "scheduler/scheduler.h"

namespace legoai::server {

// The connection to one agent. Send() queues and returns at once; thread-safe.
class AgentLink {
 public:
  virtual ~AgentLink() = default;
  virtual void Send(const v1::ToAgent& message) = 0;
  // Ends the stream with this status. Disconnected() is called as after any other end.
  virtual void Close(const absl::Status& status) = 0;
};

// An agent that is silent for longer has missed two heartbeats: it may be gone, and whether it is shows before its leases expire.
inline absl::Duration LongestSilence(absl::Duration heartbeat_interval) { return 2.5 * heartbeat_interval + absl::Seconds(1); }

struct AgentsOptions {
  absl::Duration lease_ttl, heartbeat_interval, forget_workers;  // as the controller's
  std::function<int64_t()> now_us;                               // microseconds UTC
  std::function<absl::Duration()> steady;                        // monotonic
};

class Agents {
 public:
  explicit Agents(AgentsOptions options) : options_(std::move(options)) {}

  // Adds workers from the store, not connected yet.
  void Know(const std::vector<v1::Worker>& workers);

  // ---- Sessions ----

  // The facts of the worker whose agent says hello, merged with what is known of it. Errors: another worker has its instance, or
  // it is connected from another host (AlreadyExists).
  absl::StatusOr<v1::Worker> FactsOf(const v1::Hello& hello) const;
  // Begins the worker's session, welcomes the agent and ends the previous session. Returns the session, a positive number.
  uint64_t Open(const v1::Worker& facts, const v1::Hello& hello, int64_t acknowledged_telemetry, AgentLink* link);
  // Its link is not used afterwards. Returns the worker; nothing for a session that has ended.
  std::optional<std::string> Close(uint64_t session);

  // The sender of a session's messages.
  struct Speaker {
    std::string worker, instance, runs;
    bool speaks = false;  // no later agent of the worker has connected
    bool broken = false;  // something could not be stored: later messages are not accepted and will be sent again
  };
  std::optional<Speaker> Find(uint64_t session) const;
  // Handles a heartbeat of the worker's current session; nothing for other sessions. `dropped`: metrics dropped since the last
  // one.
  std::optional<Speaker> Heard(uint64_t session, const v1::Heartbeat& heartbeat, int64_t* dropped);
  // What the worker's agent tells of its machine's health; returns what it was before. Errors: NotFound if this is not its
  // current session; those of CheckHealth.
  absl::StatusOr<v1::WorkerHealth> TakeHealth(uint64_t session, const v1::WorkerHealth& health);
  // What this process of the worker's agent has told last, in whichever connection.
  v1::WorkerHealth LastHealth(const std::string& worker, const std::string& instance) const;
  // False: the session has ended.
  bool Send(uint64_t session, const v1::ToAgent& message);
  // Accepts no more of its messages and closes its link.
  void Break(uint64_t session, const absl::Status& why);

  // The same for all.
  void EndAll(const absl::Status& why);

  // A reconnecting agent lists the leases whose trainers it still runs. Returns that list and the worker once, when all telemetry
  // that the agent had is durable, so that the worker's leases can be checked against it.
  struct Return {
    std::string worker;
    std::set<std::pair<std::string, int64_t>> leases;  // job and epoch
  };
  std::optional<Return> TakeReturn(uint64_t session, int64_t durable_telemetry);

  // ---- Workers ----

  // Its agent is stopping everything: the worker gets no more leases in this session. Leave returns the worker if the session is
  // its current one.
  std::optional<std::string> Leave(uint64_t session);
  void LeaveWorker(const std::string& worker);
  // Counts a refused message of the worker and returns the count; 0 for an unknown worker.
  int64_t CountRefusal(const std::string& worker);

  // The recipient of a lease.
  struct Place {
    uint64_t session = 0;  // 0: not connected
    std::string instance, kind, gang;
    bool leaves = false;
    bool operator==(const Place&) const = default;
  };
  std::optional<Place> PlaceOf(const std::string& worker) const;
  // Whether this process of its agent is connected.
  bool IsConnected(const std::string& worker, const std::string& instance) const;
  // Sends the message if the worker's place is still `place`; otherwise sends nothing and returns the current place.
  std::optional<Place> SendIfStill(const std::string& worker, const Place& place, const v1::ToAgent& message);

  // With state, connection and use, without leases.
  std::vector<v1::Worker> List() const;
  // As Fleet::VisitWorkers, under the mutex.
  void Visit(absl::FunctionRef<bool(const v1::Worker& facts, bool connected)> visit) const;
  std::optional<v1::Worker> FindWorker(const std::string& worker) const;
  std::optional<v1::Worker> StoredFacts(const std::string& worker) const;  // as in the store
  std::vector<v1::Worker> Draining() const;  // that are not lost, and do not let their jobs finish
  // As `facts`, the worker's, say whether it drains and how. Tells its agent too.
  void SetDraining(const v1::Worker& facts);
  // Ignoring leases.
  std::vector<scheduler::WorkerView> Views() const;

  // The server itself did not run for this long and could hear nobody.
  void ExtendAll(absl::Duration pause);
  // Workers that have been disconnected for long.
  std::vector<std::string> LongLost() const;
  void Forget(const std::string& worker);

 private:
  struct Session {
    std::string worker, instance;
    AgentLink* link = nullptr;
    std::set<std::pair<std::string, int64_t>> leases = {};  // whose trainers ran when it connected
    int64_t return_after = 0;                               // once this telemetry is durable
    bool returned = false, broken = false;
  };
  struct Entry {
    v1::Worker facts;
    std::string kind, gang;                           // of the facts
    uint64_t session = 0;                             // 0: not connected
    absl::Duration heard;                             // last time
    bool leaves = false;                              // it is stopping its trainers and has said goodbye
    int64_t refused = 0;                              // refused messages of its agents
    std::optional<v1::WorkerUse> use = std::nullopt;  // of the machine, as last reported in this session
    std::optional<v1::WorkerHealth> health = std::nullopt;  // the same
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
