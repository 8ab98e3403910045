// The agent of one machine: keeps a session with the server, holds leases, and trains.
//
// The session is reopened whenever it ends, for as long as the process lives; meanwhile trainers continue, telemetry is buffered,
// and finished checkpoints wait for their verdicts. All messages from the server and from a lease's threads are handled on the
// thread of Run(), which never waits for a disk or a trainer, so heartbeats are sent on time, before anything else.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/process/mutex.h"
#include "proto/server_list.h"
#include "worker/agent/attempt_log.h"
#include "worker/agent/commit_requests.h"
#include "worker/agent/gpu_watch.h"
#include "worker/agent/health.h"
#include "worker/agent/lease.h"
#include "worker/agent/options.h"
#include "worker/agent/slots.h"
#include "worker/agent/stream.h"
#include "worker/agent/telemetry_buffer.h"
#include "worker/agent/this_machine.h"

namespace legoai::agent {

class Agent {
 public:
  // `log` is not owned. `options.server` must be a list that ServerList::Parse takes.
  Agent(AgentOptions options, const JsonLog& log);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Blocks until Stop() was called and everything has ended, with no trainer left; then OK. Errors: the server has permanently
  // refused this agent (FailedPrecondition, InvalidArgument), or has another one of this name (Aborted).
  absl::Status Run();

  // Asks the trainers to save and stop, and Run() to return; the second call kills them. From any thread.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<std::string, int64_t>;  // job and epoch

  // Messages from other threads to that of Run().
  struct Inbox {
    std::vector<v1::ToAgent> received;
    bool written = false;
    std::optional<absl::Status> stream_ended;
    int stops = 0;
    bool changed = false;  // a lease, its telemetry or its questions
    bool health_changed = false;

    bool empty() const { return received.empty() && !written && !stream_ended && stops == 0 && !changed && !health_changed; }
  };

  // agent.cc: the loop, and leases.
  void Put(const std::function<void(Inbox&)>& write);
  Inbox WaitForInbox();
  Clock::time_point NextDeadline() const;
  void Handle(v1::ToAgent message);
  void StopLease(const v1::StopAttempt& stop);
  void Start(v1::StartAttempt start);
  void Decline(const v1::StartAttempt& start);
  void Revoke(const v1::LeaseId& id, const std::string& reason);
  Lease* Find(const v1::LeaseId& id);
  void ForgetEnded();
  void HandleStop(int times);
  bool AllEnded() const;
  void StartDueCheck();
  void StartCheck(bool takes_back);
  void Check(bool takes_back);

  // session.cc: the connection.
  void Connect();
  bool FindGangAddress();
  absl::StatusOr<std::unique_ptr<Stream>> OpenStream();
  void Welcome(const v1::Welcome& welcome);
  void CheckSession();
  void Pump();
  std::optional<v1::FromAgent> NextMessage();
  v1::Hello MakeHello();
  v1::Heartbeat MakeHeartbeat();
  void LoseStream(const absl::Status& why);
  bool LeaveSession();

  const AgentOptions options_;
  const JsonLog& log_;
  ServerList servers_;
  std::string gang_address_;  // found since the start, where options_.worker has none
  Mutex mutex_;
  Condition arrived_;
  Inbox inbox_ ABSL_GUARDED_BY(mutex_);

  // The following members belong to the thread of Run() or are thread-safe.
  UseWatch use_;
  Slots slots_;
  Health health_;
  GpuWatch gpu_watch_;
  TelemetryBuffer telemetry_;
  CommitRequests commits_;
  std::map<Key, std::unique_ptr<Lease>> leases_;
  int stops_ = 0;
  Clock::time_point kill_at_ = Clock::time_point::max();  // trainers still running then are killed

  enum class Session { kNone, kConnecting, kGreeted, kOpen, kLeaving };
  Session session_ = Session::kNone;
  std::unique_ptr<Stream> stream_;
  bool writing_ = false;  // a message is being written
  bool said_goodbye_ = false;
  Backoff backoff_;
  Clock::time_point connect_at_ = Clock::now();
  Clock::time_point heard_ = Clock::now();  // of the server
  Clock::time_point heartbeat_at_ = Clock::time_point::max();
  Clock::time_point leave_by_ = Clock::time_point::max();
  std::chrono::nanoseconds heartbeat_interval_{std::chrono::seconds(1)};
  std::chrono::nanoseconds patience_{std::chrono::seconds(20)};  // longest silence of the server
  int64_t heartbeats_ = 0;
  bool tells_health_ = false;  // it has changed since the server was told
  std::string told_trouble_;   // not reported again
  std::optional<absl::Status> refused_;
  bool check_asked_ = false;  // by an operator
  Clock::time_point check_again_at_ = Clock::now();
  std::atomic<bool> checking_{false}, ends_checks_{false};
  std::thread check_thread_;  // of the last check
};

}  // namespace legoai::agent
