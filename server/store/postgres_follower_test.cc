// Who leads a store on PostgreSQL, as the others see it, on a real server.
#include "server/store/postgres_follower.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "server/store/postgres_schema.h"
#include "server/store/testing/fault_jobs.h"
#include "server/store/testing/postgres_server.h"

namespace legoai::store {
namespace {

testing::AssertionResult IsOk(const absl::Status& status) {
  return status.ok() ? testing::AssertionSuccess() : testing::AssertionFailure() << status;
}
template <class T>
testing::AssertionResult IsOk(const absl::StatusOr<T>& value) {
  return IsOk(value.status());
}

class PostgresFollowerTest : public testing::Test {
 protected:
  void SetUp() override {
    static int schemas = 0;
    schema_ = absl::StrCat("follower_", ++schemas);
    url_ = PostgresServer::OfThisProcess().Url(schema_);
  }
  // As a server that takes the lead: without waiting for another.
  absl::StatusOr<std::unique_ptr<Store>> Lead(const std::string& address) {
    PostgresOptions options = Short();
    options.other_server = absl::ZeroDuration();
    options.address = address;
    options.on_leads = [this](int64_t term) { led_.push_back(term); };
    options.on_superseded = [this](const absl::Status&) { ++superseded_; };
    return OpenPostgresStore(url_, options);
  }
  std::unique_ptr<PostgresFollower> Follow() {
    auto follower = PostgresFollower::Make(url_, Short());
    EXPECT_TRUE(follower.ok()) << follower.status();
    return *std::move(follower);
  }
  PostgresFollower::Sight Look(PostgresFollower& follower) {
    auto sight = follower.Look();
    EXPECT_TRUE(sight.ok()) << sight.status();
    return sight.ok() ? *std::move(sight) : PostgresFollower::Sight();
  }
  void Sql(const std::string& sql) {
    EXPECT_TRUE(PostgresServer::OfThisProcess().Sql(absl::StrCat("SET search_path = ", schema_, "; ", sql)).ok());
  }

  std::string schema_, url_;
  std::vector<int64_t> led_;  // the terms
  int superseded_ = 0;
};

TEST_F(PostgresFollowerTest, SeesNobodyThenTheLeaderThenThatItIsGone) {
  const auto follower = Follow();
  EXPECT_FALSE(Look(*follower).leader.has_value()) << "an empty schema";
  EXPECT_EQ(Look(*follower).holder_pid, 0);
  {
    ASSERT_OK_AND_ASSIGN(const auto store, Lead("a:7420"));
    const auto sight = Look(*follower);
    ASSERT_TRUE(sight.leader.has_value());
    EXPECT_GT(sight.holder_pid, 0);
    EXPECT_EQ(sight.leader->term, 1);
    EXPECT_EQ(sight.leader->address, "a:7420");
    EXPECT_TRUE(absl::StartsWith(sight.leader->holder, "process ")) << sight.leader->holder;
    EXPECT_EQ(Look(*follower).leader->sequence, sight.leader->sequence) << "it has written nothing";
    // What shows that it lives, where it has nothing else to write.
    ASSERT_TRUE(IsOk(store->Write([](Transaction&) { return absl::OkStatus(); })));
    EXPECT_EQ(Look(*follower).leader->sequence, sight.leader->sequence + 1);
  }
  auto gone = Look(*follower);
  for (int tries = 0; tries < 500 && gone.holder_pid != 0; ++tries) {
    absl::SleepFor(absl::Milliseconds(20));  // the database sees a moment later that the connection has ended
    gone = Look(*follower);
  }
  EXPECT_EQ(gone.holder_pid, 0);
  EXPECT_EQ(gone.leader->term, 1) << "the last word";
}

TEST_F(PostgresFollowerTest, ReadsAndDoesNotWrite) {
  ASSERT_OK_AND_ASSIGN(const auto store, Lead("a:7420"));
  const auto follower = Follow();
  EXPECT_EQ(Count(follower->store()), 0);
  ASSERT_TRUE(IsOk(Insert(*store, 1)));
  EXPECT_EQ(Count(follower->store()), 1);
  EXPECT_TRUE(absl::IsUnavailable(Insert(follower->store(), 2)));
  EXPECT_EQ(Count(*store), 1);
}

TEST_F(PostgresFollowerTest, OneThatIsTooLateIsToldAtOnce) {
  ASSERT_OK_AND_ASSIGN(const auto store, Lead("a:7420"));
  const absl::Status second = Lead("b:7420").status();
  EXPECT_TRUE(absl::IsUnavailable(second)) << second;
  EXPECT_EQ(GetFieldViolation(second)->field(), "store");
  ASSERT_TRUE(IsOk(Insert(*store, 1)));
  EXPECT_EQ(superseded_, 0);
  EXPECT_EQ(led_, std::vector<int64_t>{1});
}

// What a leader that stands still comes back to.
TEST_F(PostgresFollowerTest, ALeaderWhoseConnectionIsEndedAndWhoseTermIsOverWritesNothing) {
  ASSERT_OK_AND_ASSIGN(const auto first, Lead("a:7420"));
  ASSERT_TRUE(IsOk(Insert(*first, 1)));
  const auto follower = Follow();
  const int64_t pid = Look(*follower).holder_pid;
  ASSERT_TRUE(IsOk(follower->EndLeader(pid)));
  absl::StatusOr<std::unique_ptr<Store>> second = Lead("b:7420");
  for (int tries = 0; tries < 100 && absl::IsUnavailable(second.status()); ++tries) {
    absl::SleepFor(absl::Milliseconds(20));  // the database ends it a moment later
    second = Lead("b:7420");
  }
  ASSERT_TRUE(IsOk(second));
  EXPECT_EQ(led_, (std::vector<int64_t>{1, 2}));
  const auto sight = Look(*follower);
  EXPECT_EQ(sight.leader->term, 2);
  EXPECT_EQ(sight.leader->address, "b:7420");
  EXPECT_NE(sight.holder_pid, pid);
  // One that looked before ends nobody who came after.
  ASSERT_TRUE(IsOk(follower->EndLeader(pid)));
  ASSERT_TRUE(IsOk(Insert(**second, 2)));
  EXPECT_TRUE(absl::IsUnavailable(Insert(*first, 3)));
  EXPECT_EQ(superseded_, 1);
  EXPECT_TRUE(absl::IsUnavailable(Insert(*first, 4)));
  EXPECT_EQ(Count(**second), 2);
}

// It had begun a transaction, whose lock on the leader's row would hold the next one up.
TEST_F(PostgresFollowerTest, WhatTheLeaderHadNotCommittedIsUndone) {
  ASSERT_OK_AND_ASSIGN(const auto first, Lead("a:7420"));
  ASSERT_TRUE(IsOk(Insert(*first, 1)));
  const auto follower = Follow();
  absl::StatusOr<std::unique_ptr<Store>> second = absl::UnavailableError("not yet");
  const absl::Status cut = first->Write([&](Transaction& t) -> absl::Status {
    if (second.ok()) return absl::CancelledError("again, under the new leader");
    RETURN_IF_ERROR(t.InsertJob(MakeJob(2), {}));
    RETURN_IF_ERROR(t.GetJob(MakeJob(1).name()).status());  // all of it is with the database now
    RETURN_IF_ERROR(follower->EndLeader(Look(*follower).holder_pid));
    for (int tries = 0; tries < 100 && !second.ok(); ++tries) {
      second = Lead("b:7420");
      absl::SleepFor(absl::Milliseconds(20));
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(IsOk(second));
  EXPECT_FALSE(cut.ok()) << cut;
  EXPECT_EQ(Count(**second), 1);
}

TEST_F(PostgresFollowerTest, TablesOfTheReleaseBeforeAreMigratedByTheLeader) {
  {
    auto connection = PostgresConnection::Open(*ParsePostgresTarget(url_), Short().times, nullptr);
    ASSERT_TRUE(IsOk(connection));
    ASSERT_TRUE(IsOk(PreparePostgresSchema(**connection, PostgresMigrations().first(1))));
  }
  const auto follower = Follow();
  EXPECT_FALSE(Look(*follower).leader.has_value());
  ASSERT_OK_AND_ASSIGN(const auto store, Lead("a:7420"));
  EXPECT_EQ(Look(*follower).leader->address, "a:7420");
}

TEST_F(PostgresFollowerTest, TablesOfALaterReleaseAreLeftAlone) {
  { ASSERT_TRUE(IsOk(Lead("a:7420"))); }
  Sql("UPDATE meta SET value = 99 WHERE key = 'schema_version'");
  const absl::Status refused = Follow()->Look().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_EQ(GetFieldViolation(refused)->field(), "store");
}

}  // namespace
}  // namespace legoai::store
