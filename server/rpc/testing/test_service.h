// The service without its living part, for tests: a store in a folder of its own, a fleet that does as it is told, the handlers,
// and a gRPC server on a port of the loopback interface that is started where it is asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/process/mutex.h"
#include "proto/rpc.h"
#include "server/access/audit.h"
#include "server/access/gate.h"
#include "server/access/tokens.h"
#include "server/fleet/fleet.h"
#include "server/jobs/notifier.h"
#include "server/metrics/registry.h"
#include "server/rpc/control_plane.h"
#include "server/rpc/grpc_control_plane.h"
#include "server/rpc/thread_pool.h"
#include "server/store/store.h"

namespace grpc {
class Server;
class Service;
}

namespace legoai::server::testing {

class ScriptedFleet : public Fleet {
 public:
  std::vector<v1::Worker> Workers() const override;
  void VisitWorkers(absl::FunctionRef<bool(const v1::Worker& facts, bool connected)> visit) const override;
  absl::StatusOr<v1::Worker> Drain(const v1::DrainWorkerRequest& request) override;
  absl::StatusOr<v1::Worker> CheckWorker(const v1::CheckWorkerRequest& request) override;
  void JobChanged(const std::string&) override { ++job_changes; }
  bool DescribeWait(v1::Job* job) const override { return describe_wait && describe_wait(job); }
  absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request,
                                      const std::function<void(const v1::PlanningProgress&)>& progress,
                                      const std::function<bool()>& cancel) override;
  absl::StatusOr<v1::Estimate> Simulate(const v1::SimRequest& request, const std::function<bool()>& cancel) override;

  void SetWorkers(std::vector<v1::Worker> workers);

  std::atomic<int> job_changes = 0;
  std::function<bool(v1::Job*)> describe_wait;  // set before it is asked
  // What Plan and Simulate do; set before they are called.
  std::function<absl::StatusOr<v1::PlanResult>(const v1::PlanRequest&, const std::function<void(const v1::PlanningProgress&)>&,
                                               const std::function<bool()>&)>
      plan;
  std::function<absl::StatusOr<v1::Estimate>(const v1::SimRequest&, const std::function<bool()>&)> simulate;

 private:
  mutable Mutex mutex_;
  std::vector<v1::Worker> workers_ ABSL_GUARDED_BY(mutex_);
};

class TestService {
 public:
  TestService();
  ~TestService();

  ControlPlane& control() { return *control_; }
  store::Store& store() { return *store_; }
  ScriptedFleet& fleet() { return fleet_; }
  Notifier& notifier() { return notifier_; }
  Metrics& metrics() { return metrics_; }
  ThreadPool& pool() { return pool_; }

  // Creates a job that is in order. Fails the test otherwise.
  v1::Job Create(const std::string& display_name = "");
  // Moves a job on, as the controller does: a path of states, each of which may follow the one before.
  v1::Job Move(const std::string& job, const std::vector<v1::JobState>& states);
  // Changes a job without changing its state.
  v1::Job Touch(const std::string& job, const std::function<void(v1::Job*)>& change);
  void Write(const std::function<absl::Status(store::Transaction&)>& work);
  v1::Job Get(const std::string& job);

  // From the next start on the server asks for tokens, and writes down who did what.
  void AskForTokens();
  // As an operator makes one. Fails the test where it cannot be made.
  v1::CreateTokenResponse MakeToken(v1::Role role, const std::string& project = "");
  void Revoke(const v1::CreateTokenResponse& made);
  access::Tokens& tokens() { return *tokens_; }
  access::Gate& gate() { return *gate_; }
  access::AuditLog& audit() { return *audit_; }

  // The gRPC server; "127.0.0.1:PORT". A second start takes the port of the first.
  std::string StartServer(const GrpcLimits& limits = {}, const Keepalive& keepalive = {});
  void StopServer();
  const std::string& address() const { return address_; }

  std::filesystem::path folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  std::unique_ptr<store::Store> store_;
  ScriptedFleet fleet_;
  Notifier notifier_;
  Metrics metrics_;
  ThreadPool pool_{8};
  std::unique_ptr<ControlPlane> control_;
  std::unique_ptr<access::AuditLog> audit_;
  std::unique_ptr<access::Gate> gate_;
  std::unique_ptr<access::Tokens> tokens_;
  std::unique_ptr<GrpcControlPlane> glue_;
  std::unique_ptr<grpc::Service> access_control_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// Takes connections, and answers nobody, as a server does that stands still.
class SilentServer {
 public:
  SilentServer();
  ~SilentServer();
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;
  const std::string& address() const { return address_; }

 private:
  const int socket_;
  std::string address_;
};

// That an error is of this code and names this field, with a remedy that has this part.
void ExpectFault(const absl::Status& status, absl::StatusCode code, const std::string& field, const std::string& part = "");

}  // namespace legoai::server::testing
