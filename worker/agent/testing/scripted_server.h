// The server's side of WorkerService for tests of the agent: keeps what it is told and answers as the test says. By default
// ado it welcomes every agent, acknowledges all telemetry, renews all leases and commits every checkpoint. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/process/mutex.h"
#include "proto/legoai/v1/worker_service.grpc.pb.h"

namespace legoai::agent::testing {

class ScriptedServer : private v1::WorkerService::Service {
 public:
  // What the server has heard over all connections, and how it answers. Only under the lock: in Await() and Change().
  struct State {
    std::vector<v1::Hello> hellos;
    std::vector<v1::Heartbeat> heartbeats;
    std::map<int64_t, v1::Telemetry> telemetry;  // by number, each once
    std::vector<v1::CommitRequest> commit_requests;
    int64_t facts_heard = 0;     // those that came again counted again
    int64_t contradictions = 0;  // facts that came again with another content
    int goodbyes = 0;
    int connections = 0;  // open now

    grpc::Status refusal;                                                  // of hellos
    std::function<std::optional<bool>(const v1::CommitRequest&)> verdict;  // nothing: it does not answer
    std::vector<v1::LeaseId> revoked;                                      // in answers to heartbeats
    bool acknowledges = true;                                              // telemetry, and says in its welcome what it has
    double heartbeat_interval_seconds = 0.05;

    // Of one lease, in order; `epoch` 0: of all.
    std::vector<v1::StepMetrics> Metrics(int64_t epoch = 0) const;
    std::vector<std::string> Logs() const;
    std::optional<v1::AttemptEnded> Ended(int64_t epoch) const;
  };

  ScriptedServer();  // listens on a free port of loopback
  ~ScriptedServer();

  std::string address() const;
  // The server process is gone, and all connections with it. Then it is back at the same address, with what it had heard.
  void GoAway();
  void ComeBack();

  void Send(v1::ToAgent message);  // over the open connection
  void Change(const std::function<void(State&)>& change);
  // Waits, a minute or two at most, until it holds. False: it never did.
  bool Await(const std::function<bool(const State&)>& condition);
  State Get();

 private:
  using Pipe = grpc::ServerReaderWriter<v1::ToAgent, v1::FromAgent>;
  grpc::Status Connect(grpc::ServerContext* context, Pipe* pipe) override;
  void Hear(const v1::FromAgent& message, Pipe* pipe);
  void Answer(const v1::CommitRequest& request, Pipe* pipe) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  Condition changed_;
  State state_ ABSL_GUARDED_BY(mutex_);
  Pipe* pipe_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the open connection
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace legoai::agent::testing
