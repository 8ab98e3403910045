#include "server/leader/leader_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "core/hardware/catalog.h"
#include "core/process/mutex.h"
#include "proto/errors.h"
#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "proto/not_leader.h"
#include "server/jobs/testing/example_submission.h"
#include "server/rpc/testing/grpc_client.h"
#include "server/rpc/testing/test_service.h"

namespace legoai::server {
namespace {

using ::testing::HasSubstr;

v1::PlanRequest APlan() {
  v1::PlanRequest request;
  request.mutable_model()->set_name("gpt2");
  *request.mutable_cluster() = sim::ParseCluster("h100-sxm-80:1x1").value();
  request.set_global_batch(4);
  request.set_seq_len(16);
  return request;
}

// A follower of a leader that answers over gRPC.
class LeaderClientTest : public ::testing::Test {
 protected:
  void SetUp() override { Know(leader_.StartServer(), 3); }

  void Know(const std::string& address, int64_t term) {
    Leadership leading{.leads = false, .address = "follower:1"};
    leading.leader.emplace();
    leading.leader->set_address(address);
    leading.leader->set_term(term);
    Know(leading);
  }
  void Know(const Leadership& leading) {
    const MutexLock lock(mutex_);
    leading_ = leading;
  }
  template <typename Request, typename Response>
  std::optional<absl::Status> PassOn(const std::string& method, const Request& request, Response* response,
                                     const PassedCall& call = {}) {
    return client_.PassOn(method, call, request, response);
  }
  static void ExpectNotLeader(const std::optional<absl::Status>& status, const std::string& address) {
    ASSERT_TRUE(status.has_value());
    const auto leader = GetNotLeader(*status);
    ASSERT_TRUE(leader.has_value()) << *status;
    EXPECT_EQ(leader->leader_address(), address);
  }

  testing::TestService leader_;
  Mutex mutex_;
  Leadership leading_ ABSL_GUARDED_BY(mutex_);
  LeaderClient client_{[this] {
    const MutexLock lock(mutex_);
    return leading_;
  }};
};

TEST_F(LeaderClientTest, WhatChangesSomethingIsTheLeadersAndReadsAreNot) {
  v1::Job job;
  auto status = PassOn("CreateJob", testing::ExampleSubmission(), &job);
  ASSERT_TRUE(status.has_value());
  ASSERT_TRUE(status->ok()) << *status;
  EXPECT_EQ(leader_.Get(job.name()).spec().display_name(), job.spec().display_name());
  v1::ListJobsResponse list;
  EXPECT_FALSE(PassOn("ListJobs", v1::ListJobsRequest(), &list).has_value());
  v1::ServerInfo info;
  EXPECT_FALSE(PassOn("GetServerInfo", v1::GetServerInfoRequest(), &info).has_value());
}

TEST_F(LeaderClientTest, AnErrorOfTheLeaderIsTheCallers) {
  v1::CancelJobRequest request;
  request.set_name("nonsense");
  v1::Job job;
  const auto status = PassOn("CancelJob", request, &job);
  ASSERT_TRUE(status.has_value());
  testing::ExpectFault(*status, absl::StatusCode::kInvalidArgument, "name");
}

TEST_F(LeaderClientTest, ALeaderAnswersItself) {
  Know(Leadership{.leads = true});
  v1::Job job;
  EXPECT_FALSE(PassOn("CreateJob", testing::ExampleSubmission(), &job).has_value());
  EXPECT_FALSE(client_.PassOnPlan({}, v1::PlanRequest(), [](const v1::PlanResponse&) { return true; }).has_value());
}

TEST_F(LeaderClientTest, WhereNobodyLeadsOrItWasPassedOnAlreadyItIsRefusedWithWhatIsKnown) {
  v1::Job job;
  ExpectNotLeader(PassOn("CreateJob", testing::ExampleSubmission(), &job, {.passed_on = true}), leader_.address());
  Know(Leadership{.leads = false, .address = "follower:1"});
  ExpectNotLeader(PassOn("CreateJob", testing::ExampleSubmission(), &job), "");
  Know("follower:1", 3);  // it led a moment ago
  ExpectNotLeader(PassOn("CreateJob", testing::ExampleSubmission(), &job), "");
}

TEST_F(LeaderClientTest, ALeaderThatIsGoneIsNamed) {
  leader_.StopServer();
  v1::Job job;
  const auto status = PassOn("CreateJob", testing::ExampleSubmission(), &job);
  ASSERT_TRUE(status.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*status)) << *status;
  EXPECT_THAT(std::string(status->message()), HasSubstr(leader_.address() + " does not answer"));
}

// What a leader that ends does with calls that it has not taken yet.
class CutsOff : public v1::ControlPlane::Service {
 public:
  grpc::Status CreateJob(grpc::ServerContext* context, const v1::CreateJobRequest*, v1::Job*) override {
    context->TryCancel();
    return grpc::Status::OK;
  }
};

TEST_F(LeaderClientTest, ACallThatTheLeaderCutsOffMayBeTriedAgain) {
  CutsOff service;
  const testing::LoopbackServer server(&service);
  Know(server.address(), 3);
  v1::Job job;
  const auto status = PassOn("CreateJob", testing::ExampleSubmission(), &job);
  ASSERT_TRUE(status.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*status)) << *status;
}

TEST_F(LeaderClientTest, ACallThatWaitsEndsWhereTheLeaderChangesOrTheCallerLeaves) {
  std::atomic<bool> waits = false;
  leader_.fleet().plan = [&](const v1::PlanRequest&, const auto&, const std::function<bool()>& cancelled)
      -> absl::StatusOr<v1::PlanResult> {
    waits = true;
    while (!cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return absl::CancelledError("the caller has left");
  };
  const auto plan = [&](const PassedCall& call) {
    return client_.PassOnPlan(call, APlan(), [](const v1::PlanResponse&) { return true; });
  };
  std::thread other([&] {
    while (!waits) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Know("next:1", 4);
  });
  ExpectNotLeader(plan({}), "next:1");
  other.join();
  Know(leader_.address(), 5);
  waits = false;
  const auto left = plan({.cancelled = [&] { return waits.load(); }});
  ASSERT_TRUE(left.has_value());
  EXPECT_TRUE(absl::IsCancelled(*left)) << *left;
}

TEST_F(LeaderClientTest, APlanIsStreamedOn) {
  leader_.fleet().plan = [](const v1::PlanRequest&, const std::function<void(const v1::PlanningProgress&)>& progress,
                            const auto&) -> absl::StatusOr<v1::PlanResult> {
    progress(v1::PlanningProgress());
    v1::PlanResult result;
    result.set_explanation("because");
    return result;
  };
  std::string explanation;
  const auto status = client_.PassOnPlan({}, APlan(), [&](const v1::PlanResponse& response) {
    explanation = response.result().explanation();
    return true;
  });
  ASSERT_TRUE(status.has_value());
  EXPECT_TRUE(status->ok()) << *status;
  EXPECT_EQ(explanation, "because");
}

}  // namespace
}  // namespace legoai::server
