// A store that refuses writes since its disk is full: nothing is acknowledged that is not kept, nothing is lost that was, and all
// goes on when there is space.
#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <thread>

#include "server/fleet/testing/fleet_fixture.h"

namespace legoai::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace v1;  // the states' names

class FullDiskTest : public FleetTest {
 protected:
  // A write has been refused since this was called.
  void AwaitRefusedWrite() {
    const int64_t before = store_->writes;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (store_->writes == before && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_GT(store_->writes, before);
  }
  // The same agent over another stream, with all that it has not heard to be kept.
  void Reconnect(TestAgent* agent, TestAgent* again, const v1::LeaseId& lease) {
    controller_->Disconnected(agent->session);
    again->sequence = agent->sequence;
    *again->hello.add_leases() = lease;
    Connect(again);
  }
  static bool IsAck(const v1::ToAgent& message) { return message.has_telemetry_ack(); }
  static bool IsCommit(const v1::ToAgent& message) { return message.has_commit(); }
};

TEST_F(FullDiskTest, TelemetryIsNotAcknowledgedAndComesAgain) {
  TestAgent again("a");
  const v1::LeaseId lease = Begin(&agent_).lease();
  const std::string job = lease.job();
  ReportStep(&agent_, lease, 1);
  EXPECT_EQ(agent_.link.Next(IsAck).telemetry_ack().sequence(), 1);
  store_->space = 0;
  ReportStep(&agent_, lease, 2);
  ASSERT_TRUE(agent_.link.closed());
  EXPECT_EQ(agent_.link.closed()->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(agent_.link.closed()->message()), HasSubstr("the disk is full"));
  store_->space = INT64_MAX;
  ReportStep(&agent_, lease, 3);  // on its way already: an acknowledgement of it would be one of step 2
  EXPECT_FALSE(agent_.link.Has(IsAck));
  EXPECT_EQ(Metrics(job).size(), 1);
  Reconnect(&agent_, &again, lease);
  const auto welcome = again.link.Next([](const v1::ToAgent& message) { return message.has_welcome(); }).welcome();
  EXPECT_EQ(welcome.acknowledged_telemetry(), 1);
  again.sequence = 1;
  for (int step = 2; step <= 4; ++step) ReportStep(&again, lease, step);
  EXPECT_EQ(Metrics(job).size(), 4);
  EXPECT_EQ(Get(job).state(), RUNNING);
  EXPECT_EQ(Get(job).epoch(), 1);
  ReportEnd(&again, lease, absl::OkStatus());
  EXPECT_EQ(Get(job).state(), SUCCEEDED);
}

TEST_F(FullDiskTest, ACommitIsNeitherGrantedNorDeniedAndIsAskedForAgain) {
  TestAgent again("a");
  const v1::LeaseId lease = Begin(&agent_).lease();
  const std::string job = lease.job();
  ReportStep(&agent_, lease, 1);
  store_->space = 0;
  AskForCommit(&agent_, lease, 1);
  ASSERT_TRUE(agent_.link.closed());
  EXPECT_EQ(agent_.link.closed()->code(), absl::StatusCode::kUnavailable);
  AskForCommit(&agent_, lease, 2);
  store_->space = INT64_MAX;
  AskForCommit(&agent_, lease, 3);
  EXPECT_FALSE(agent_.link.Has(IsCommit));
  EXPECT_FALSE(Get(job).has_committed_step());
  Reconnect(&agent_, &again, lease);
  EXPECT_TRUE(Commit(&again, lease, 1).commit());
  EXPECT_EQ(Get(job).committed_step(), 1);
  EXPECT_EQ(Get(job).state(), RUNNING);
}

TEST_F(FullDiskTest, APlanIsKeptUntilItCanBeStored) {
  hold_plans_ = true;
  Connect(&agent_);
  const std::string job = Submit(2);
  AwaitState(job, PLANNING);
  store_->space = 0;
  hold_plans_ = false;
  AwaitRefusedWrite();
  EXPECT_EQ(Get(job).state(), PLANNING);
  store_->space = INT64_MAX;
  skew_seconds_ = 10;  // it is tried again after a while
  EXPECT_EQ(agent_.link.NextStart().lease().job(), job);
  EXPECT_THAT(History(job), ElementsAre(PLANNING, QUEUED, LEASED)) << "planned once";
}

TEST_F(FullDiskTest, ALeaseThatCannotBeStoredIsNotGiven) {
  const v1::LeaseId first = Begin(&agent_).lease();
  const std::string job = Submit(2);
  Await(job, [](const v1::Job& now) { return now.queue_position() == 1; });
  store_->space = 1;  // for the report
  ReportEnd(&agent_, first, absl::OkStatus());
  AwaitRefusedWrite();
  EXPECT_EQ(Get(job).state(), QUEUED);
  EXPECT_TRUE(controller_->Workers()[0].used().empty());
  store_->space = INT64_MAX;
  skew_seconds_ = 10;
  const v1::LeaseId lease = agent_.link.NextStart().lease();
  EXPECT_EQ(lease.job(), job);
  EXPECT_EQ(lease.epoch(), 1);
}

TEST_F(FullDiskTest, AnAgentThatCannotBeTakenInKeepsItsLease) {
  TestAgent again("a");
  const v1::LeaseId lease = Begin(&agent_).lease();
  const std::string job = lease.job();
  ReportStep(&agent_, lease, 1);
  controller_->Disconnected(agent_.session);
  store_->space = 0;
  again.sequence = agent_.sequence;
  again.hello.set_last_telemetry(agent_.sequence);
  *again.hello.add_leases() = lease;
  for (const int64_t seconds : {600, 1200, 1800}) {  // each within the lease's time after the one before
    skew_seconds_ = seconds;
    EXPECT_TRUE(absl::IsResourceExhausted(controller_->Connect(again.hello, &again.link).status()));
  }
  store_->space = INT64_MAX;
  Connect(&again);
  AwaitDecision();
  ReportStep(&again, lease, 2);
  EXPECT_EQ(Get(job).state(), RUNNING);
  EXPECT_EQ(Get(job).epoch(), 1);
}

TEST_F(FullDiskTest, ALeaseThatHasExpiredIsEndedWhenItCanBe) {
  Connect(&agent_);
  const std::string job = Submit(2);
  agent_.link.NextStart();
  store_->space = 0;
  skew_seconds_ = 1100;
  AwaitRefusedWrite();
  EXPECT_EQ(Get(job).state(), LEASED);
  store_->space = INT64_MAX;
  AwaitState(job, RESTARTING);
}

}  // namespace
}  // namespace legoai::server
