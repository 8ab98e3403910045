// Servers of one process over a real PostgreSQL; each can be made to stand still before its database.
#include "server/leader/election.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
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

// Plans without end, unless it is told to stop.
class EndlessEstimator : public planner::Estimator {
 public:
  explicit EndlessEstimator(std::atomic<bool>* began) : began_(began) {}
  int64_t Slots() const override { return 1; }
  absl::Status Start(const v1::SimRequest&) override {
    *began_ = true;
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration limit) override {
    absl::SleepFor(std::min(limit, absl::Milliseconds(5)));
    return std::nullopt;
  }
  void StopAll() override {}

 private:
  std::atomic<bool>* const began_;
};

// One of the servers.
class Member {
 public:
  using Change = std::function<void(ElectionOptions*)>;
  Member(const std::string& url, const std::string& address, const Change& change = [](ElectionOptions*) {}) {
    ElectionOptions options;
    options.store_url = url;
    options.postgres = store::Short();
    options.postgres.patience = absl::Seconds(1);
    options.postgres.on_round_trip = [this] {
      // The first to ask is the thread that leads and follows.
      std::thread::id nobody;
      const std::thread::id this_one = std::this_thread::get_id();
      const bool elects = elects_.compare_exchange_strong(nobody, this_one) || nobody == this_one;
      while (stands_still || (writes_stand_still && !elects)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    };
    options.address = address;
    options.lease = absl::Seconds(1);
    options.controller = Quiet(&metrics_);
    options.on_end = [this](const absl::Status& why) {
      why_ended = why;
      ended = true;
    };
    change(&options);
    election_ = std::make_unique<Election>(options, &notifier_);
  }
  ~Member() { stands_still = writes_stand_still = false; }

  Election& operator*() { return *election_; }
  Election* operator->() { return election_.get(); }
  bool leads() { return election_->reign() != nullptr; }

  std::atomic<bool> stands_still = false, writes_stand_still = false, ended = false;
  absl::Status why_ended;  // before `ended`

 private:
  std::atomic<std::thread::id> elects_;
  Metrics metrics_;
  Notifier notifier_;
  std::unique_ptr<Election> election_;
};

bool Within(const std::function<bool()>& condition) {
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (!condition() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
  return condition();
}

// Longer than any pause of a loaded machine: a leader that lives must not lose it by itself.
void LongLease(ElectionOptions* options) { options->lease = absl::Seconds(4); }

class ElectionTest : public testing::Test {
 protected:
  void SetUp() override {
    static int schemas = 0;
    schema_ = absl::StrCat("election_", ++schemas);
    url_ = store::PostgresServer::OfThisProcess().Url(schema_);
  }
  std::unique_ptr<Member> Begin(const std::string& address, const Member::Change& change = [](ElectionOptions*) {}) {
    auto member = std::make_unique<Member>(url_, address, change);
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
  auto first = Begin("first:1", LongLease), second = Begin("second:1", LongLease);
  for (int i = 0; i < 2; ++i) {
    second->stands_still = true;
    absl::SleepFor(absl::Seconds(5));
    second->stands_still = false;
    absl::SleepFor(absl::Seconds(1));
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

TEST_F(ElectionTest, OneThatIsStartedWhileTheDatabaseIsAwayWaitsForIt) {
  { const auto before = Begin("before:1"); }
  store::PostgresOutage outage(store::PostgresServer::OfThisProcess());
  auto first = Begin("first:1");
  EXPECT_TRUE(absl::IsUnavailable((*first)->Ready().status()));
  EXPECT_FALSE((*first)->Leading().leader.has_value());
  EXPECT_TRUE(GetNotLeader((*first)->LeadingController().status()).has_value());
  ASSERT_TRUE(outage.End().ok());
  EXPECT_TRUE(Within([&] { return first->leads(); }));
  EXPECT_TRUE((*first)->Ready().ok());
  EXPECT_FALSE(first->ended);
}

TEST_F(ElectionTest, ATargetThatIsWrongEndsOneAtItsStart) {
  const std::string wrong = store::PostgresServer::OfThisProcess().UrlAs("postgres", "", "no_such_database");
  Member member(wrong, "first:1");
  const absl::Status started = member->Start();
  EXPECT_TRUE(absl::IsNotFound(started)) << started;
  EXPECT_FALSE(member.ended) << "what Start() returns is told once";
}

TEST_F(ElectionTest, OneThatFindsALaterReleasesTablesOnceTheDatabaseIsBackEnds) {
  store::PostgresServer& database = store::PostgresServer::OfThisProcess();
  { const auto before = Begin("before:1"); }
  ASSERT_TRUE(database.Sql(absl::StrCat("UPDATE ", schema_, ".meta SET value = 99 WHERE key = 'schema_version'")).ok());
  store::PostgresOutage outage(database);
  auto first = Begin("first:1");
  ASSERT_TRUE(outage.End().ok());
  EXPECT_TRUE(Within([&] { return first->ended.load(); }));
  EXPECT_TRUE(absl::IsFailedPrecondition(first->why_ended)) << first->why_ended;
}

// Whoever leads next, and not only the server that was started first, can prepare what goes with a reign.
TEST_F(ElectionTest, WhatIsToBeDoneBeforeAReignIsDoneWithItsStore) {
  std::atomic<int> firsts = 0, seconds = 0;
  const auto counts = [](std::atomic<int>* count, int64_t job) {
    return [count, job](ElectionOptions* options) {
      options->before_reign = [count, job](store::Store& store) {
        ++*count;
        return store::Insert(store, job);
      };
    };
  };
  auto first = Begin("first:1", counts(&firsts, 1)), second = Begin("second:1", counts(&seconds, 2));
  EXPECT_EQ(firsts, 1);
  EXPECT_EQ(seconds, 0);
  first.reset();
  ASSERT_TRUE(Within([&] { return second->leads(); }));
  EXPECT_EQ(seconds, 1);
  EXPECT_EQ(store::Count(**second), 2);
}

TEST_F(ElectionTest, WhatFailsBeforeAReignEndsAServerAtItsStartAndNoneThatTakesOver) {
  const auto fails = [](ElectionOptions* options) {
    options->before_reign = [](store::Store&) { return FieldError("--first_token_file", "/none/file", "cannot be written"); };
  };
  {
    Member alone(url_, "first:1", fails);
    EXPECT_TRUE(absl::IsInvalidArgument(alone->Start()));
    EXPECT_FALSE(alone.ended);
  }
  auto first = Begin("first:1"), second = Begin("second:1", fails);
  first.reset();
  EXPECT_TRUE(Within([&] { return second->leads(); }));
}

// What is under way in a reign may wait for a database that does not answer: whoever let it in waits, and not the election.
TEST_F(ElectionTest, OneThatStepsDownFollowsWhileItsWritesStillWait) {
  auto first = Begin("first:1");
  ASSERT_TRUE(first->leads());
  first->writes_stand_still = true;
  EXPECT_TRUE(Within([&] {
    const Leadership now = (*first)->Leading();
    return !now.leads && now.leader.has_value();
  })) << "it does not look while an old write waits";
  first->writes_stand_still = false;
  EXPECT_TRUE(Within([&] { return first->leads(); }));
}

TEST_F(ElectionTest, ACallThatDoesNotEndHasTheReignForItselfInTheEnd) {
  auto first = Begin("first:1");
  auto call = (*first)->reign();
  ASSERT_NE(call, nullptr);
  const std::weak_ptr<Reign> reign = call;
  first->stands_still = true;
  auto second = Begin("second:1");
  EXPECT_TRUE(Within([&] { return !first->leads(); }));
  first->stands_still = false;
  EXPECT_TRUE(Within([&] { return call.use_count() == 1; }));
  call.reset();
  EXPECT_TRUE(reign.expired());
}

TEST_F(ElectionTest, APlanIsGivenUpWhereItsLeaderIsReplaced) {
  std::atomic<bool> began = false, answered = false;
  auto first = Begin("first:1", [&began](ElectionOptions* options) {
    options->controller.make_estimator = [&began] { return std::make_unique<EndlessEstimator>(&began); };
  });
  auto second = Begin("second:1");
  absl::Status answer;
  std::thread caller([&] {
    v1::SimRequest request;
    answer = (*first)->Simulate(request, nullptr).status();
    answered = true;
  });
  EXPECT_TRUE(Within([&] { return began.load(); }));
  EXPECT_FALSE(answered);
  first->stands_still = true;
  EXPECT_TRUE(Within([&] { return answered.load(); }));
  first->stands_still = false;
  caller.join();
  EXPECT_TRUE(GetNotLeader(answer).has_value()) << answer;
}

TEST_F(ElectionTest, AnAddressThatAnotherServerAdvertisesIsRefused) {
  auto first = Begin("same:1", LongLease), second = Begin("same:1", LongLease);
  EXPECT_TRUE(Within([&] { return second->ended.load(); }));
  const auto violation = GetFieldViolation(second->why_ended);
  ASSERT_TRUE(violation.has_value()) << second->why_ended;
  EXPECT_EQ(violation->field(), "--advertise_address");
  EXPECT_TRUE(first->leads());
  EXPECT_FALSE(first->ended);
}

// As where its machine was lost, and the database has not noticed: the one before still has the lock, and its row stands still.
TEST_F(ElectionTest, OneThatIsStartedAgainTakesOverFromItselfAndThatOneNeverLeadsAgain) {
  auto first = Begin("same:1");
  ASSERT_TRUE(first->leads());
  first->stands_still = true;
  absl::SleepFor(absl::Seconds(1));  // what it had asked for is answered: its row stands still from here on
  auto again = Begin("same:1");
  EXPECT_TRUE(Within([&] { return again->leads() || again->ended; }));
  EXPECT_FALSE(again->ended) << again->why_ended;
  // It wakes, and finds another that lives under its address: it ends, also where that one goes meanwhile.
  first->stands_still = false;
  EXPECT_TRUE(Within([&] { return first->ended.load(); }));
  again.reset();
  absl::SleepFor(absl::Seconds(2));  // ten looks, two leases
  EXPECT_FALSE(first->leads());
  auto third = Begin("same:1");
  EXPECT_TRUE(Within([&] { return third->leads(); }));
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
