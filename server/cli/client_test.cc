#include "server/cli/client.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "server/jobs/testing/example_submission.h"
#include "server/rpc/testing/grpc_client.h"
#include "server/rpc/testing/test_service.h"

namespace legoai::cli {
namespace {

using server::testing::ExampleSubmission;

constexpr absl::Duration kLong = absl::Seconds(120);

v1::ListJobsRequest AllJobs() {
  v1::ListJobsRequest request;
  request.set_parent("projects/default");
  return request;
}

TEST(Client, CallsWaitForAServerThatComesBack) {
  server::testing::TestService service;
  const std::string address = service.StartServer();
  service.StopServer();
  Client client(address, kLong);
  absl::StatusOr<v1::Job> job;
  std::thread caller([&] { job = client.CreateJob(ExampleSubmission("request-1")); });
  absl::SleepFor(absl::Milliseconds(300));  // some attempts fail meanwhile, as a rule
  service.StartServer();
  caller.join();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(client.ListJobs(AllJobs())->total_size(), 1);
}

TEST(Client, WhatMightBeDoneTwiceIsNotTriedAgain) {
  server::testing::TestService service;
  const std::string address = service.StartServer();
  service.StopServer();
  Client client(address, kLong);
  const absl::Status status = client.CreateJob(ExampleSubmission()).status();  // would take minutes otherwise
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(std::string(status.message()).rfind("no server at " + address + ": start one with `lego up`", 0), 0u) << status;
}

// What a server that ends does with a call that it has not taken yet.
class CutsOffTheFirst : public v1::ControlPlane::Service {
 public:
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest*, v1::ListJobsResponse*) override {
    if (calls++ == 0) context->TryCancel();
    return grpc::Status::OK;
  }
  grpc::Status Simulate(grpc::ServerContext* context, const v1::SimulateRequest*, v1::Estimate*) override {
    context->TryCancel();
    return grpc::Status::OK;
  }
  std::atomic<int> calls = 0;
};

TEST(Client, ACallThatIsCutOffIsTriedAgain) {
  CutsOffTheFirst service;
  const server::testing::LoopbackServer server(&service);
  Client client(server.address(), kLong);
  const absl::Status status = client.ListJobs(AllJobs()).status();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(service.calls, 2);
  // A simulation is not: nobody has interrupted it.
  const absl::Status simulated = client.Simulate(v1::SimulateRequest(), nullptr).status();
  EXPECT_TRUE(absl::IsUnavailable(simulated)) << simulated;
}

TEST(Client, ErrorsOfTheServerAreItsOwn) {
  server::testing::TestService service;
  Client client(service.StartServer());
  v1::CreateJobRequest request = ExampleSubmission();
  request.mutable_spec()->mutable_policy()->set_priority(5000);
  const absl::Status status = client.CreateJob(request).status();
  ASSERT_TRUE(GetFieldViolation(status)) << status;
  EXPECT_EQ(GetFieldViolation(status)->field(), "spec.policy.priority");
}

TEST(Client, AWatchGoesOnOverRestartsAndMissesNothing) {
  server::testing::TestService service;
  Client client(service.StartServer());
  const std::string name = service.Create().name();
  std::vector<v1::JobState> seen;
  std::atomic<int> news = 0, away = 0;
  Client::WatchCallbacks callbacks;
  callbacks.news = [&](const v1::WatchJobResponse& response) {
    for (const auto& transition : response.transitions()) seen.push_back(transition.to());
    ++news;
  };
  callbacks.away = [&](const absl::Status&) { ++away; };
  absl::Status status;
  std::thread watcher([&] { status = client.WatchJob(name, callbacks); });
  const std::vector<v1::JobState> path = {v1::PLANNING, v1::QUEUED, v1::LEASED, v1::RUNNING, v1::SUCCEEDED};
  auto wait = [](const std::atomic<int>& count, int least) {
    for (int i = 0; i < 24000 && count < least; ++i) absl::SleepFor(absl::Milliseconds(5));
    EXPECT_GE(count, least);
  };
  for (v1::JobState state : path) {
    wait(news, 1);
    service.StopServer();
    wait(away, 1);
    service.Move(name, {state});
    news = away = 0;
    service.StartServer();
  }
  watcher.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen, (std::vector<v1::JobState>{v1::SUBMITTED, v1::PLANNING, v1::QUEUED, v1::LEASED, v1::RUNNING, v1::SUCCEEDED}));
}

TEST(Client, OneThatStandsStillIsNamedWithHowLongItWasWaitedFor) {
  const server::testing::SilentServer a, b;
  const auto ask = [](const std::string& addresses, std::optional<absl::Duration> limit) {
    auto client = Client::Open(*ServerList::Parse("--server", addresses), {}, absl::ZeroDuration(), limit);
    EXPECT_TRUE(client.ok()) << client.status();
    return std::string((*client)->ListJobs(AllJobs()).status().message());
  };
  const std::string alone = ask(a.address(), absl::Milliseconds(300));
  EXPECT_EQ(alone, "the server at " + a.address() + " did not answer within 300ms");
  const std::string several = ask(absl::StrCat(a.address(), ",", b.address()), std::nullopt);
  EXPECT_EQ(several, "the server at " + a.address() + " did not answer within 5s, as long as each of several is waited for");
}

TEST(Client, AWatchIsLeftAtOnce) {
  server::testing::TestService service;
  Client client(service.StartServer());
  const std::string name = service.Create().name();
  std::atomic<bool> interrupted = false;
  Client::WatchCallbacks callbacks;
  callbacks.news = [&](const v1::WatchJobResponse&) { interrupted = true; };
  callbacks.interrupted = [&] { return interrupted.load(); };
  EXPECT_TRUE(absl::IsCancelled(client.WatchJob(name, callbacks)));
  // And so is one whose server is away.
  interrupted = false;
  callbacks.news = [&](const v1::WatchJobResponse&) { std::thread([&] { service.StopServer(); }).join(); };
  callbacks.away = [&](const absl::Status&) { interrupted = true; };
  EXPECT_TRUE(absl::IsCancelled(client.WatchJob(name, callbacks)));
}

}  // namespace
}  // namespace legoai::cli
