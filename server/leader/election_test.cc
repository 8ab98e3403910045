// Servers of one process over a real PostgreSQL; each can be made to stand still before its database.
#include "server/leader/election.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/not_leader.h"
#include "proto/testing/assert_ok.h"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/metrics/registry.h"
#include "server/store/testing/fault_jobs.h"
#include "server/store/testing/postgres_server.h"

namespace legoai::server {
namespace {

using ::testing::HasSubstr;

// Nobody plans here.
class NoEstimator : public planner::Estimator {
 public:
  int64_t Slots() const override { return 1; }
  absl::Status Start(const v1::SimRequest&) override { return absl::UnavailableError("nothing is estimated"); }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration) override { return std::nullopt; }
  void StopAll() override {}
};

ControllerOptions Quiet(Metrics* metrics) {
  ControllerOptions options;
  options.make_estimator = [] { return std::make_unique<NoEstimator>(); };
  options.now_us = [] { return absl::ToUnixMicros(absl::Now()); };
  options.steady = [] { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); };
  options.metrics = metrics;
  return options;
}

// One of the servers.
class Member {
 public:
  Member(const std::string& url, const std::string& address) {
    ElectionOptions options;
    options.store_url = url;
    options.postgres = store::Short();
    options.postgres.patience = absl::Seconds(1);
    options.postgres.on_round_trip = [this] {
      while (stands_still) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    };
    options.address = address;
    options.lease = absl::Seconds(1);
    options.controller = Quiet(&metrics_);
    options.on_end = [this](const absl::Status&) { ended = true; };
    election_ = std::make_unique<Election>(options, &notifier_);
  }
  ~Member() { stands_still = false; }

  Election& operator*() { return *election_; }
  Election* operator->() { return election_.get(); }
  bool leads() { return election_->reign() != nullptr; }

  std::atomic<bool> stands_still = false, ended = false;

 private:
  Metrics metrics_;
  Notifier notifier_;
  std::unique_ptr<Election> election_;
};

bool Within(const std::function<bool()>& condition) {
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (!condition() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
  return condition();
}

class ElectionTest : public testing::Test {
 protected:
  void SetUp() override {
    static int schemas = 0;
    schema_ = absl::StrCat("election_", ++schemas);
    url_ = store::PostgresServer::OfThisProcess().Url(schema_);
  }
  std::unique_ptr<Member> Begin(const std::string& address) {
    auto member = std::make_unique<Member>(url_, address);
    const absl::Status started = (*member)->Start();
    EXPECT_TRUE(started.ok()) << started;
    return member;
  }

  std::string schema_, url_;
};

TEST_F(ElectionTest, OneOfManyThatStartTogetherLeadsAndTheOthersSayWho) {
  std::vector<std::unique_ptr<Member>> members(3);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members.size(); ++i)
    threads.emplace_back([&, i] { members[i] = Begin(absl::StrCat("server-", i, ":7420")); });
  for (std::thread& thread : threads) thread.join();
  size_t leader = members.size();
  for (size_t i = 0; i < members.size(); ++i) {
    if (!members[i]->leads()) continue;
    EXPECT_EQ(leader, members.size()) << "two lead";
    leader = i;
  }
  ASSERT_LT(leader, members.size());
  const std::string address = absl::StrCat("server-", leader, ":7420");
  for (auto& member : members) {
    ASSERT_TRUE(Within([&] { return (*member)->Leading().leader.has_value(); }));
    EXPECT_EQ((*member)->Leading().leader->address(), address);
    EXPECT_EQ((*member)->Leading().leader->term(), 1);
    const auto ready = (*member)->Ready();
    ASSERT_TRUE(ready.ok()) << ready.status();
    EXPECT_THAT(*ready, HasSubstr(member->leads() ? "leads" : address));
    if (member->leads()) continue;
    const auto refused = GetNotLeader((*member)->LeadingController().status());
    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->leader_address(), address);
    EXPECT_TRUE(GetNotLeader(store::Insert(**member, 1)).has_value());
    EXPECT_EQ(store::Count(**member), 0);
  }
  EXPECT_TRUE(store::Insert(**members[leader], 1).ok());
  for (auto& member : members) EXPECT_EQ(store::Count(**member), 1);
}

TEST_F(ElectionTest, AnotherLeadsWhereTheLeaderEndsWithWhatThatHasWritten) {
  auto first = Begin("first:1");
  ASSERT_TRUE(first->leads());
  auto second = Begin("second:1");
  ASSERT_TRUE(store::Insert(**first, 1).ok());
  first.reset();
  ASSERT_TRUE(Within([&] { return second->leads(); }));
  EXPECT_EQ((*second)->Leading().leader->term(), 2);
  EXPECT_TRUE(store::Insert(**second, 2).ok());
  EXPECT_EQ(store::Count(**second), 2);
}

TEST_F(ElectionTest, ALeaderThatStandsStillIsReplacedTellsItsAgentsAndFollows) {
  auto first = Begin("first:1"), second = Begin("second:1");
  ASSERT_TRUE(first->leads());
  const auto reign = (*first)->reign();
  TestAgent agent("a");
  const auto session = reign->controller().Connect(agent.hello, &agent.link);
  ASSERT_TRUE(session.ok()) << session.status();
  first->stands_still = true;
  EXPECT_TRUE(Within([&] { return second->leads(); }));
  EXPECT_TRUE(Within([&] { return !first->leads(); })) << "it cannot renew";
  EXPECT_TRUE(Within([&] { return agent.link.closed().has_value(); }));
  EXPECT_TRUE(GetNotLeader(*agent.link.closed()).has_value());
  ASSERT_TRUE(store::Insert(**second, 1).ok());
  first->stands_still = false;
  EXPECT_TRUE(Within([&] {
    const Leadership now = (*first)->Leading();
    return !now.leads && now.leader && now.leader->address() == "second:1";
  }));
  // What it led with is of no use any more, though somebody still has it.
  EXPECT_TRUE(absl::IsUnavailable(store::Insert(reign->store(), 2)));
  EXPECT_EQ(store::Count(**first), 1);
  reign->controller().Disconnected(*session);
  second.reset();
  EXPECT_TRUE(Within([&] { return first->leads(); })) << "it can lead again";
  EXPECT_EQ((*first)->Leading().leader->term(), 3);
  EXPECT_TRUE(absl::IsUnavailable(store::Insert(reign->store(), 2))) << "under the new term, too";
  EXPECT_TRUE(store::Insert(**first, 2).ok());
}

// A follower that was stopped for a while, and looks again, takes nothing from a leader that lives.
TEST_F(ElectionTest, AFollowerThatStoodStillLeavesTheLeaderAlone) {
  auto first = Begin("first:1"), second = Begin("second:1");
  for (int i = 0; i < 3; ++i) {
    second->stands_still = true;
    absl::SleepFor(absl::Milliseconds(1500));
    second->stands_still = false;
    absl::SleepFor(absl::Milliseconds(300));
  }
  EXPECT_TRUE(first->leads());
  EXPECT_FALSE(second->leads());
  EXPECT_EQ((*first)->Leading().leader->term(), 1);
}

TEST_F(ElectionTest, OneThatFindsALaterReleasesTablesEnds) {
  auto first = Begin("first:1"), second = Begin("second:1");
  const auto changed = store::PostgresServer::OfThisProcess().Sql(
      absl::StrCat("SET search_path = ", schema_, "; UPDATE meta SET value = 99 WHERE key = 'schema_version'"));
  ASSERT_TRUE(changed.ok()) << changed.status();
  first.reset();
  EXPECT_TRUE(Within([&] { return second->ended.load(); }));
  EXPECT_FALSE(second->leads());
}

TEST_F(ElectionTest, OverSqliteOneServerLeadsByItself) {
  const std::string folder = testing::TempDir() + "/alone";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  Member alone(absl::StrCat("sqlite:", folder, "/legoai.db"), "");
  ASSERT_TRUE(alone->Start().ok());
  EXPECT_TRUE(alone->Leading().leads);
  EXPECT_FALSE(alone->Leading().leader.has_value());
  EXPECT_EQ(*alone->Ready(), "leads");
  EXPECT_EQ(alone->Backend(), "sqlite");
  EXPECT_TRUE(store::Insert(*alone, 1).ok());
  EXPECT_EQ(store::Count(*alone), 1);
  Member second(absl::StrCat("sqlite:", folder, "/legoai.db"), "");
  EXPECT_TRUE(absl::IsFailedPrecondition(second->Start()));
}

}  // namespace
}  // namespace legoai::server
