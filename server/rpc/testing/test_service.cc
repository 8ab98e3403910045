#include "server/rpc/testing/test_service.h"

#include <arpa/inet.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "server/jobs/request_checks.h"
#include "server/jobs/testing/example_submission.h"
#include "server/jobs/transition.h"
#include "server/rpc/grpc_access_control.h"
#include "server/store/open_store.h"
#include "server/store/testing/test_store.h"

namespace legoai::server::testing {
namespace {

int64_t NowMicroseconds() { return absl::GetCurrentTimeNanos() / 1000; }

}  // namespace

std::vector<v1::Worker> ScriptedFleet::Workers() const {
  const MutexLock lock(mutex_);
  return workers_;
}

void ScriptedFleet::VisitWorkers(absl::FunctionRef<bool(const v1::Worker& facts, bool connected)> visit) const {
  for (const v1::Worker& worker : Workers()) {
    if (!visit(worker, worker.connected())) return;
  }
}

void ScriptedFleet::SetWorkers(std::vector<v1::Worker> workers) {
  const MutexLock lock(mutex_);
  workers_ = std::move(workers);
  std::sort(workers_.begin(), workers_.end(), [](const auto& a, const auto& b) { return a.name() < b.name(); });
}

absl::StatusOr<v1::Worker> ScriptedFleet::Drain(const v1::DrainWorkerRequest& request) {
  const MutexLock lock(mutex_);
  for (v1::Worker& known : workers_) {
    if (known.name() != request.name()) continue;
    known.set_state(request.undo() ? v1::READY : v1::DRAINING);
    known.set_lets_finish(request.let_finish());
    return known;
  }
  return absl::NotFoundError("no such worker");
}

absl::StatusOr<v1::Worker> ScriptedFleet::CheckWorker(const v1::CheckWorkerRequest& request) {
  const MutexLock lock(mutex_);
  for (v1::Worker& known : workers_) {
    if (known.name() != request.name()) continue;
    const v1::Worker before = known;
    v1::MachineCheck& check = *known.mutable_health()->mutable_check();
    check.set_number(check.number() + 1);
    return before;
  }
  return absl::NotFoundError("no such worker");
}

absl::StatusOr<v1::PlanResult> ScriptedFleet::Plan(const v1::PlanRequest& request,
                                                   const std::function<void(const v1::PlanningProgress&)>& progress,
                                                   const std::function<bool()>& cancel) {
  if (!plan) return absl::UnavailableError("this fleet plans nothing");
  return plan(request, progress, cancel);
}

absl::StatusOr<v1::Estimate> ScriptedFleet::Simulate(const v1::SimRequest& request, const std::function<bool()>& cancel) {
  if (!simulate) return absl::UnavailableError("this fleet simulates nothing");
  return simulate(request, cancel);
}

TestService::TestService() {
  static std::atomic<int> count = 0;
  folder_ = std::filesystem::path(::testing::TempDir()) / ("service-" + std::to_string(getpid()) + "-" + std::to_string(++count));
  std::filesystem::create_directories(folder_);
  auto opened = store::OpenStore(store::TestStoreUrl(folder_.string()));
  if (!opened.ok()) ADD_FAILURE() << opened.status();
  store_ = *std::move(opened);
  control_ = std::make_unique<ControlPlane>(store_.get(), &fleet_, &notifier_, NowMicroseconds);
}

TestService::~TestService() {
  StopServer();
  tokens_.reset();
  gate_.reset();
  control_.reset();
  store_.reset();
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

v1::Job TestService::Create(const std::string& display_name) {
  v1::CreateJobRequest request = ExampleSubmission();
  request.mutable_spec()->set_display_name(display_name);
  auto job = control_->CreateJob(request);
  if (!job.ok()) ADD_FAILURE() << job.status();
  return job.value_or(v1::Job());
}

void TestService::Write(const std::function<absl::Status(store::Transaction&)>& work) {
  const absl::Status status = store_->Write(work);
  EXPECT_TRUE(status.ok()) << status;
}

v1::Job TestService::Move(const std::string& name, const std::vector<v1::JobState>& states) {
  for (v1::JobState state : states) {
    Write([&](store::Transaction& transaction) -> absl::Status {
      auto job = transaction.GetJob(name);
      if (!job.ok()) return job.status();
      if (state == v1::LEASED) (*job)->set_epoch((*job)->epoch() + 1);
      return server::Move(transaction, &**job, state, "as the test wants it", NowMicroseconds());
    });
    notifier_.JobChanged(name);
  }
  return Get(name);
}

v1::Job TestService::Touch(const std::string& name, const std::function<void(v1::Job*)>& change) {
  Write([&](store::Transaction& transaction) -> absl::Status {
    auto job = transaction.GetJob(name);
    if (!job.ok()) return job.status();
    change(&**job);
    return server::Touch(transaction, &**job, NowMicroseconds());
  });
  notifier_.JobChanged(name);
  return Get(name);
}

v1::Job TestService::Get(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  auto job = control_->GetJob(request);
  if (!job.ok()) ADD_FAILURE() << job.status();
  return job.value_or(v1::Job());
}

void TestService::AskForTokens() {
  auto audit = access::AuditLog::Open((folder_ / "audit.jsonl").string());
  ASSERT_TRUE(audit.ok()) << audit.status();
  audit_ = *std::move(audit);
  gate_ = std::make_unique<access::Gate>(store_.get(), NowMicroseconds,
                                         access::GateOptions{.refresh = absl::Milliseconds(20), .audit = audit_.get()});
  EXPECT_TRUE(gate_->Begin().ok());
  tokens_ = std::make_unique<access::Tokens>(store_.get(), gate_.get(), NowMicroseconds);
}

v1::CreateTokenResponse TestService::MakeToken(v1::Role role, const std::string& project) {
  v1::CreateTokenRequest request;
  request.set_role(role);
  request.set_project(project);
  auto made = tokens_->Create(access::Anybody(), request);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.value_or(v1::CreateTokenResponse());
}

void TestService::Revoke(const v1::CreateTokenResponse& made) {
  v1::RevokeTokenRequest request;
  request.set_name(made.token().name());
  EXPECT_TRUE(tokens_->Revoke(access::Anybody(), request).ok());
}

std::string TestService::StartServer(const GrpcLimits& limits, const Keepalive& keepalive) {
  StopServer();
  glue_ = std::make_unique<GrpcControlPlane>(control_.get(), &pool_, limits, &metrics_, gate_.get());
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address_.empty() ? "127.0.0.1:0" : address_, grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(kMostRequestBytes);
  SetKeepalive(keepalive, &builder);
  builder.RegisterService(glue_->service());
  if (tokens_ != nullptr) {
    access_control_ = MakeAccessControlService(tokens_.get(), gate_.get(), nullptr, &pool_);
    builder.RegisterService(access_control_.get());
  }
  server_ = builder.BuildAndStart();
  EXPECT_NE(server_, nullptr);
  if (address_.empty()) address_ = "127.0.0.1:" + std::to_string(port);
  return address_;
}

void TestService::StopServer() {
  if (!server_) return;
  glue_->EndWatches();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server_.reset();
  glue_.reset();
  access_control_.reset();
}

SilentServer::SilentServer() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(socket_, 16), 0);
  EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
  address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
}

SilentServer::~SilentServer() { close(socket_); }

void ExpectFault(const absl::Status& status, absl::StatusCode code, const std::string& field, const std::string& part) {
  EXPECT_EQ(status.code(), code) << status;
  const auto fault = GetFieldViolation(status);
  ASSERT_TRUE(fault) << status;
  EXPECT_EQ(fault->field(), field) << status;
  EXPECT_NE(fault->remedy().find(part), std::string::npos) << status;
}

}  // namespace legoai::server::testing
