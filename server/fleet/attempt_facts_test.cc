// An agent that lies: what it says of others' leases, of folders that are not its attempt's, and of steps that cannot be.
#include "server/fleet/attempt_facts.h"

#include <gmock/gmock.h>

#include <atomic>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/metrics/log.h"
#include "worker/agent/epoch_directory.h"

namespace legoai::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace v1;  // the states' names

constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();

class LeaseBindingTest : public FleetTest {
 protected:
  // A job of 10 steps that `owner` has begun to train.
  v1::LeaseId Start(TestAgent* owner, int64_t interval = 1) {
    Connect(owner);
    v1::Job job = MakeJob(2, 1, /*max_restarts=*/5);
    job.mutable_spec()->mutable_recipe()->mutable_checkpoint()->set_interval(interval);
    Submit(job);
    const v1::LeaseId lease = owner->link.NextStart().lease();
    ReportStep(owner, lease, 1);
    return lease;
  }
  v1::CommitAnswer Ask(TestAgent* agent, const v1::CommitRequest& request) {
    controller_->CommitRequest(agent->session, request);
    return agent->link.Next([](const v1::ToAgent& message) { return message.has_commit(); }).commit();
  }
  // Denied for that reason, and nothing is committed by it.
  void ExpectDenied(TestAgent* agent, const v1::CommitRequest& request, const std::string& why) {
    SCOPED_TRACE(request.ShortDebugString());
    const auto before = Committed(request.lease().job());
    const v1::CommitAnswer answer = Ask(agent, request);
    EXPECT_FALSE(answer.commit());
    EXPECT_EQ(answer.id(), request.id());
    EXPECT_THAT(answer.reason(), HasSubstr(why));
    EXPECT_EQ(Committed(request.lease().job()), before);
  }
  // "epoch:step=digest's first letter" of all.
  std::vector<std::string> Committed(const std::string& job) {
    std::vector<std::string> all;
    for (const v1::Checkpoint& one : MustRead(*store_, [&](auto& read) { return read.ListCheckpoints(job); })) {
      all.push_back(absl::StrCat(one.epoch(), ":", one.step(), "=", one.digest().substr(0, 1)));
      EXPECT_EQ(one.directory(), CheckpointsOf(job, one.epoch()));
    }
    return all;
  }
};

TEST_F(LeaseBindingTest, NobodyCommitsForTheLeaseOfAnother) {
  TestAgent owner("a"), other("b");
  const v1::LeaseId lease = Start(&owner);
  Connect(&other);
  ExpectDenied(&other, CommitOf(lease, 2), "is not this agent's");
  EXPECT_FALSE(Get(lease.job()).has_committed_step());
  EXPECT_TRUE(Commit(&owner, lease, 2).commit());
}

TEST_F(LeaseBindingTest, NobodyReportsOfTheLeaseOfAnother) {
  TestAgent owner("a"), other("b");
  const v1::LeaseId lease = Start(&owner);
  Connect(&other);
  ReportStep(&other, lease, 5);
  Report(&other, lease, [](v1::Telemetry* fact) { fact->mutable_log()->set_text("an invented line"); });
  Report(&other, lease, [](v1::Telemetry* fact) { fact->mutable_earlier_removed(); });
  ReportEnd(&other, lease, absl::OkStatus());
  ReportEnd(&other, lease, absl::InvalidArgumentError("the job is wrong"));
  EXPECT_EQ(Get(lease.job()).state(), RUNNING);
  EXPECT_EQ(Get(lease.job()).progress().step(), 1);
  EXPECT_EQ(Metrics(lease.job()).size(), 1u);
  const auto ack = other.link.Next([](const v1::ToAgent& message) { return message.telemetry_ack().sequence() == 5; });
  EXPECT_TRUE(ack.has_telemetry_ack()) << "it is not to send them for ever";
  ReportEnd(&owner, lease, absl::OkStatus());
  EXPECT_EQ(Get(lease.job()).state(), SUCCEEDED);
}

TEST_F(LeaseBindingTest, AStreamThatWasReplacedSpeaksForNobody) {
  TestAgent first("a"), second("a");
  const v1::LeaseId lease = Start(&first);
  *second.hello.add_leases() = lease;
  second.sequence = first.sequence;
  Connect(&second);
  controller_->CommitRequest(first.session, CommitOf(lease, 2));
  ReportStep(&first, lease, 3);
  ReportEnd(&first, lease, absl::OkStatus());
  EXPECT_THAT(Committed(lease.job()), IsEmpty());
  EXPECT_FALSE(first.link.Has([](const v1::ToAgent& message) { return message.has_commit(); }));
  EXPECT_EQ(Get(lease.job()).state(), RUNNING);
  EXPECT_EQ(Metrics(lease.job()).size(), 1u);
  EXPECT_TRUE(Commit(&second, lease, 2).commit());
  ReportStep(&second, lease, 2);
  EXPECT_EQ(Metrics(lease.job()).size(), 2u);
}

// Whoever takes the name of a worker is another process, in which no trainer of the first can run, whatever it lists.
TEST_F(LeaseBindingTest, AnotherProcessOfTheSameNameTakesNoLeaseOver) {
  TestAgent owner("a"), thief("a");
  const v1::LeaseId lease = Start(&owner);
  thief.hello.mutable_worker()->set_instance("a-2");
  *thief.hello.add_leases() = lease;
  thief.sequence = 1'000'000'000;  // "much is still to be told": the lease is not judged before
  Connect(&thief);
  const auto revoked = thief.link.Next([](const v1::ToAgent& message) { return message.heartbeat().revoked_size() > 0; });
  EXPECT_EQ(revoked.heartbeat().revoked(0).job(), lease.job());
  EXPECT_FALSE(Ask(&thief, CommitOf(lease, 2)).commit());
  ReportEnd(&thief, lease, absl::OkStatus());
  EXPECT_THAT(Committed(lease.job()), IsEmpty());
  EXPECT_EQ(Attempts(lease.job())[0].state(), "lost");
}

TEST_F(LeaseBindingTest, OnlyTheAttemptsOwnFolderIsCommitted) {
  TestAgent owner("a", 4);
  const v1::LeaseId lease = Start(&owner), other = [&] {
    const std::string job = Submit(2);
    return owner.link.NextStart().lease();
  }();
  const std::string own = CheckpointsOf(lease.job(), 1), id = lease.job().substr(lease.job().rfind('/') + 1);
  for (const std::string& directory :
       {CheckpointsOf(other.job(), 1), CheckpointsOf(lease.job(), 2), CheckpointsOf(lease.job(), 0), std::string(),
        std::string("/"), std::string("/runs"), absl::StrCat("/runs/", id), absl::StrCat("/runs/", id, "/epoch-1"),
        absl::StrCat(own, "/"), absl::StrCat(own, "/."), absl::StrCat(own, "/.."),
        absl::StrCat(own, "/../../epoch-1/checkpoints"), absl::StrCat("/", own), absl::StrCat("/elsewhere/../", own),
        own.substr(1), absl::StrCat("/elsewhere", own.substr(5)), absl::StrCat(own, std::string(1, '\0')),
        absl::StrCat(own, "\n")}) {
    v1::CommitRequest request = CommitOf(lease, 2);
    request.set_directory(directory);
    ExpectDenied(&owner, request, "this attempt saves in " + own);
  }
  EXPECT_TRUE(Ask(&owner, CommitOf(lease, 2)).commit());
}

TEST_F(LeaseBindingTest, TheFolderIsThatWhichTheAgentMakes) {
  for (const int64_t epoch : {1, 27}) {
    v1::LeaseId lease;
    lease.set_job("projects/default/jobs/01JD5W");
    lease.set_epoch(epoch);
    EXPECT_EQ(*server::CheckpointsOf("/shared/runs", lease),
              launch::CheckpointsPath(*agent::EpochDirectory("/shared/runs", lease)));
  }
}

TEST_F(LeaseBindingTest, OnlyStepsThatTheAttemptCanReach) {
  TestAgent owner("a");
  v1::LeaseId lease = Start(&owner);
  for (const int64_t step : {kMin, int64_t{-1}, int64_t{0}, int64_t{11}, kMax})
    ExpectDenied(&owner, CommitOf(lease, step), "began after step 0 and ends with step 10, does not come to it");
  EXPECT_TRUE(Commit(&owner, lease, 4).commit());
  ReportEnd(&owner, lease, absl::UnavailableError("rank 1 died"), false, 5);
  lease = owner.link.NextStart().lease();
  for (const int64_t step : {3, 4}) ExpectDenied(&owner, CommitOf(lease, step), "began after step 4");
  EXPECT_TRUE(Commit(&owner, lease, 5).commit());
  EXPECT_THAT(Committed(lease.job()), ElementsAre("1:4=d", "2:5=d"));
}

TEST_F(LeaseBindingTest, ACheckpointWithoutTheDigestOfItsManifestIsNone) {
  TestAgent owner("a");
  const v1::LeaseId lease = Start(&owner);
  for (const std::string& digest : {std::string(), std::string("d"), std::string(63, 'd'), std::string(65, 'd'),
                                    std::string(64, 'D'), std::string(64, 'g'), std::string(64, '\0')}) {
    v1::CommitRequest request = CommitOf(lease, 2);
    request.set_digest(digest);
    ExpectDenied(&owner, request, "no SHA-256");
  }
}

TEST_F(LeaseBindingTest, TheSameIsCommittedOnceAndAnotherInItsPlaceNever) {
  TestAgent owner("a");
  const v1::LeaseId lease = Start(&owner);
  for (const int64_t step : {2, 4, 6}) EXPECT_TRUE(Commit(&owner, lease, step).commit());
  Report(&owner, lease, [&](v1::Telemetry* fact) {  // the run has removed step 2
    fact->mutable_directory_kept()->set_directory(CheckpointsOf(lease.job(), 1));
    fact->mutable_directory_kept()->add_steps(4);
    fact->mutable_directory_kept()->add_steps(6);
  });
  for (const int64_t step : {2, 4, 6}) EXPECT_TRUE(Commit(&owner, lease, step).commit()) << "the answer was lost";
  for (const int64_t step : {2, 4, 6}) {
    v1::CommitRequest request = CommitOf(lease, step);
    request.set_digest(std::string(64, 'e'));
    ExpectDenied(&owner, request, "it is committed with another digest, " + std::string(64, 'd'));
  }
  ExpectDenied(&owner, CommitOf(lease, 5), "step 6 of this attempt is committed already");
  EXPECT_THAT(Committed(lease.job()), ElementsAre("1:2=d", "1:4=d", "1:6=d"));
}

// The ranks went on while the server was away, and ended.
TEST_F(LeaseBindingTest, SeveralThatWereSavedMeanwhileComeTogetherBeforeTheEnd) {
  TestAgent owner("a");
  const v1::LeaseId lease = Start(&owner, /*interval=*/4);
  for (const int64_t step : {4, 8, 10}) AskForCommit(&owner, lease, step);
  ReportEnd(&owner, lease, absl::OkStatus());
  for (const int64_t step : {4, 8, 10}) {
    const auto answer = owner.link.Next([](const v1::ToAgent& message) { return message.has_commit(); }).commit();
    EXPECT_EQ(answer.id(), step);
    EXPECT_TRUE(answer.commit()) << answer.reason();
  }
  EXPECT_EQ(Get(lease.job()).state(), SUCCEEDED);
}

TEST_F(LeaseBindingTest, NothingFollowsTheStepAtWhichItWasStopped) {
  TestAgent owner("a");
  const v1::LeaseId lease = Start(&owner, /*interval=*/4);
  EXPECT_TRUE(Commit(&owner, lease, 4).commit());
  EXPECT_TRUE(Commit(&owner, lease, 6).commit()) << "the agent was asked to end";
  for (const int64_t step : {7, 8, 10}) ExpectDenied(&owner, CommitOf(lease, step), "was stopped after step 6");
  EXPECT_TRUE(Commit(&owner, lease, 6).commit()) << "again";
}

TEST_F(LeaseBindingTest, FactsOfStepsThatCannotBeChangeNothing) {
  TestAgent owner("a");
  const v1::LeaseId lease = Start(&owner);
  for (const int64_t step : {kMin, int64_t{-1}, int64_t{0}, int64_t{11}, kMax}) {
    ReportStep(&owner, lease, step);
    if (step == 0) continue;
    Report(&owner, lease, [&](v1::Telemetry* fact) { fact->mutable_progress()->set_step(step); });
    ReportEnd(&owner, lease, absl::OkStatus(), /*stopped=*/false, step);
  }
  EXPECT_EQ(Get(lease.job()).state(), RUNNING);
  EXPECT_EQ(Get(lease.job()).progress().step(), 1);
  EXPECT_EQ(Metrics(lease.job()).size(), 1u);
  ReportStep(&owner, lease, 10);
  EXPECT_EQ(Metrics(lease.job()).size(), 2u);
}

TEST_F(LeaseBindingTest, RowsAndTracesAreOfTheJobsRanks) {
  TestAgent owner("a");
  const v1::LeaseId lease = Start(&owner);
  const auto report = [&](int64_t step, const std::vector<int64_t>& ranks) {
    Report(&owner, lease, [&](v1::Telemetry* fact) {
      fact->mutable_metrics()->set_step(step);
      for (int64_t rank : ranks) fact->mutable_metrics()->add_ranks()->set_rank(rank);
    });
  };
  const auto trace = [&](int64_t step, int64_t rank, const std::string& bytes) {
    Report(&owner, lease, [&](v1::Telemetry* fact) {
      fact->mutable_step_trace()->set_step(step);
      fact->mutable_step_trace()->set_rank(rank);
      fact->mutable_step_trace()->set_trace_gzip(bytes);
    });
  };
  const std::string gzip = "\x1f\x8b and so on";
  for (const auto& ranks : std::vector<std::vector<int64_t>>{{0, 2}, {1, 0}, {0, 0}, {-1}, {kMax}}) report(2, ranks);
  for (const int64_t step : {int64_t{0}, int64_t{11}, kMin}) trace(step, 0, gzip);
  for (const int64_t rank : {int64_t{-1}, int64_t{2}, kMax}) trace(3, rank, gzip);
  for (const std::string bytes : {"", "\x1f", "{\"traceEvents\": []}"}) trace(3, 0, bytes);
  EXPECT_EQ(Get(lease.job()).state(), RUNNING);
  EXPECT_EQ(Metrics(lease.job()).size(), 1u) << "the first step, with which it began";
  report(2, {0, 1});
  trace(3, 1, gzip);
  const auto reports = MustRead(*store_, [&](auto& read) { return read.ListRankReports(lease.job(), 9); });
  EXPECT_EQ(reports.at(0).ranks_size(), 2);
  const auto traces = MustRead(*store_, [&](auto& read) { return read.ListStepTraces(lease.job()); });
  EXPECT_EQ(traces.size(), 1u);
  EXPECT_EQ(traces.at(0).name(), lease.job() + "/stepTraces/1-3-1");
  EXPECT_EQ(traces.at(0).bytes(), static_cast<int64_t>(gzip.size()));
  EXPECT_GT(traces.at(0).time_us(), 0);
  const auto file = MustRead(*store_, [&](auto& read) { return read.GetStepTrace(lease.job(), 1, 3, 1); });
  EXPECT_EQ(file->trace_gzip(), gzip);
  EXPECT_THAT(file->file_name(), testing::EndsWith("-attempt-1-step-3-rank-1.json.gz"));
}

TEST_F(LeaseBindingTest, AJobThatIsOverHearsNothingMore) {
  TestAgent owner("a");
  const v1::LeaseId lease = Start(&owner);
  EXPECT_TRUE(Commit(&owner, lease, 2).commit());
  ReportEnd(&owner, lease, absl::OkStatus());
  const v1::Job done = Get(lease.job());
  EXPECT_EQ(done.state(), SUCCEEDED);
  ExpectDenied(&owner, CommitOf(lease, 10), "is over: the job is succeeded");
  ReportStep(&owner, lease, 9);
  ReportEnd(&owner, lease, absl::UnavailableError("rank 1 died"));
  EXPECT_EQ(Get(lease.job()).SerializeAsString(), done.SerializeAsString());
}

TEST_F(LeaseBindingTest, WhatAnotherJobsFolderHoldsIsNotItsToSay) {
  TestAgent owner("a", 4);
  const v1::LeaseId lease = Start(&owner);
  const std::string other = Submit(2);
  const v1::LeaseId of_other = owner.link.NextStart().lease();
  for (const int64_t step : {1, 2, 3}) EXPECT_TRUE(Commit(&owner, of_other, step).commit());
  Report(&owner, lease, [&](v1::Telemetry* fact) {
    fact->mutable_directory_kept()->set_directory(CheckpointsOf(other, 1));
    fact->mutable_directory_kept()->add_steps(3);
  });
  EXPECT_EQ(MustRead(*store_, [&](auto& read) { return read.ListKeptCheckpoints(other); }).size(), 3u);
}

TEST_F(LeaseBindingTest, RefusalsAreLoggedAndFillNoDisk) {
  TestAgent owner("a"), other("b");
  const v1::LeaseId lease = Start(&owner);
  Connect(&other);
  std::atomic<int> lines = 0;
  SetLogSink([&](std::string_view line) {
    const std::string text(line);
    if (text.find("is not this agent's") == std::string::npos) return;
    ++lines;
    EXPECT_THAT(text, HasSubstr("\"worker\":\"workers/b\""));
    EXPECT_THAT(text, HasSubstr("step 2 is not committed"));
  });
  for (int i = 0; i < 1000; ++i) Ask(&other, CommitOf(lease, 2));
  SetLogSink({});
  EXPECT_EQ(lines, 16) << "the first ten, then the 16th, 32nd ... 512th";
}

TEST_F(LeaseBindingTest, AnAgentNamesTheFolderOfItsRunsPlainly) {
  for (const std::string& runs :
       {std::string(), std::string("runs"), std::string("/"), std::string("/runs/"), std::string("/a//b"), std::string("/a/../b"),
        std::string("/a/./b"), std::string("/a\nb"), "/" + std::string(5000, 'a')}) {
    agent_.hello.mutable_worker()->set_runs(runs);
    const auto refused = controller_->Connect(agent_.hello, &agent_.link);
    ASSERT_FALSE(refused.ok()) << runs;
    EXPECT_EQ(GetFieldViolation(refused.status())->field(), "worker.runs");
  }
  EXPECT_TRUE(CheckRuns("/shared/runs").ok());
}

// Facts are numbered by instance: under another's, those of that other would be taken for repeated ones.
TEST_F(LeaseBindingTest, TheInstanceOfAnotherWorkerIsRefused) {
  TestAgent owner("a"), thief("b");
  const v1::LeaseId lease = Start(&owner);
  thief.hello.mutable_worker()->set_instance("a-1");
  const auto refused = controller_->Connect(thief.hello, &thief.link);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(GetFieldViolation(refused.status())->field(), "worker.instance");
  ReportStep(&owner, lease, 2);
  EXPECT_EQ(Metrics(lease.job()).size(), 2u);
}

}  // namespace
}  // namespace legoai::server
