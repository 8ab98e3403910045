// What the server itself adds to the log of a job, and which checkpoints it still lists.
#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/process/mutex.h"
#include "nlohmann/json.hpp"
#include "proto/errors.h"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/jobs/transition.h"
#include "server/metrics/log.h"

namespace legoai::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class JobLogTest : public FleetTest {
 protected:
  std::vector<v1::LogLine> Lines(const std::string& job) {
    return MustRead(*store_, [&](auto& read) { return read.ListLogs({.job = job, .limit = 1000}); });
  }
  std::vector<std::string> Texts(const std::string& job) {
    std::vector<std::string> texts;
    for (const v1::LogLine& line : Lines(job)) {
      EXPECT_FALSE(line.has_rank());
      texts.push_back(absl::StrCat(line.attempt(), " ", line.level(), " ", line.text()));
    }
    return texts;
  }
  // "epoch:step" of those that are not gone.
  std::vector<std::string> Kept(const std::string& job) {
    std::vector<std::string> kept;
    for (const v1::Checkpoint& one : MustRead(*store_, [&](auto& read) { return read.ListCheckpoints(job); })) {
      if (!one.has_remove_time_us()) kept.push_back(absl::StrCat(one.epoch(), ":", one.step()));
    }
    return kept;
  }
  void ReportKept(TestAgent* agent, const v1::LeaseId& lease, int64_t epoch, const std::vector<int64_t>& steps) {
    Report(agent, lease, [&](v1::Telemetry* fact) {
      fact->mutable_directory_kept()->set_directory(CheckpointsOf(lease.job(), epoch));
      for (const int64_t step : steps) fact->mutable_directory_kept()->add_steps(step);
    });
  }
};

TEST_F(JobLogTest, WhereItRunsAndWhyItGoesOnElsewhere) {
  const v1::StartAttempt start = Begin(&agent_);
  const std::string job = start.lease().job();
  EXPECT_THAT(start.recipe_text(), HasSubstr("local batch"));
  ReportStep(&agent_, start.lease(), 1);
  ReportEnd(&agent_, start.lease(), absl::UnavailableError("rank 1 died"));
  ReportEnd(&agent_, agent_.link.NextStart().lease(), absl::OkStatus(), /*stopped=*/false, 10);
  EXPECT_THAT(
      Texts(job),
      ElementsAre("0 info job planning: ranks recipes for 2 slots of workers/a",
                  AllOf(StartsWith("0 info job queued: its recipe is the fastest that fits of "), HasSubstr("local batch")),
                  "1 info job leased: 2 slots of workers/a",
                  "1 warning job restarting: rank 1 died; begins anew in 1 s (restart 1 of 1 without a new checkpoint)",
                  "2 info job leased: 2 slots of workers/a", "2 info job succeeded: finished at step 10"));
}

TEST_F(JobLogTest, WhyItFailedAtOnce) {
  const std::string job = Submit(2);
  Connect(&agent_);
  ReportEnd(&agent_, agent_.link.NextStart().lease(),
            FieldError("training.dataset_path", "/x", "does not exist", absl::StatusCode::kNotFound));
  EXPECT_THAT(Texts(job).back(), AllOf(StartsWith("1 error job failed: "), HasSubstr("/x")));
}

TEST_F(JobLogTest, WhyItWasCancelledBeforeAnythingRan) {
  const std::string job = Submit(2);
  MoveJob(job, v1::CANCELLED, "asked by a user");
  EXPECT_THAT(Texts(job), ElementsAre("0 info job cancelled: asked by a user"));
}

// As a server before this one has left them: the digests of all ranks in a field that is not used any more, and no digest.
TEST_F(JobLogTest, CheckpointsOfAnEarlierServerAreListedAndGoneOnFrom) {
  const std::string job = Submit(2);
  Connect(&agent_);
  v1::LeaseId lease = agent_.link.NextStart().lease();
  for (const int64_t step : {2, 4}) {
    EXPECT_TRUE(Commit(&agent_, lease, step).commit());
    Write([&](store::Transaction& transaction) {
      v1::Checkpoint checkpoint = (*transaction.ListCheckpoints(job)).back();
      checkpoint.clear_digest();
      checkpoint.GetReflection()->MutableUnknownFields(&checkpoint)->AddLengthDelimited(6, "the digest of rank 0");
      return transaction.PutCheckpoint(job, checkpoint);
    });
  }
  ReportEnd(&agent_, lease, absl::UnavailableError("rank 1 died"));
  const v1::StartAttempt start = agent_.link.NextStart();
  EXPECT_EQ(start.resume_step(), 4);
  EXPECT_EQ(start.resume_directory(), CheckpointsOf(job, 1));
  EXPECT_THAT(Kept(job), ElementsAre("1:2", "1:4"));
  ReportKept(&agent_, start.lease(), 1, {4});
  EXPECT_THAT(Kept(job), ElementsAre("1:4"));
  EXPECT_TRUE(Commit(&agent_, start.lease(), 6).commit());
}

TEST_F(JobLogTest, CheckpointsThatAreRemovedAreNotListed) {
  const std::string job = Submit(2);
  Connect(&agent_);
  v1::LeaseId lease = agent_.link.NextStart().lease();
  for (const int64_t step : {1, 2, 3}) EXPECT_TRUE(Commit(&agent_, lease, step).commit());
  ReportKept(&agent_, lease, 1, {});
  EXPECT_THAT(Kept(job), ElementsAre("1:1", "1:2", "1:3")) << "it says nothing";
  // The word of step 1's removal was lost; that of step 2's comes when step 3 is committed already.
  ReportKept(&agent_, lease, 1, {2});
  EXPECT_THAT(Kept(job), ElementsAre("1:2", "1:3"));
  EXPECT_TRUE(Commit(&agent_, lease, 4).commit());
  ReportKept(&agent_, lease, 1, {3, 4});
  EXPECT_THAT(Kept(job), ElementsAre("1:3", "1:4"));
  ReportEnd(&agent_, lease, absl::UnavailableError("rank 1 died"));

  const v1::LeaseId fenced = lease;
  v1::StartAttempt start = agent_.link.NextStart();
  EXPECT_EQ(start.resume_step(), 4);
  EXPECT_EQ(start.resume_directory(), CheckpointsOf(job, 1));
  lease = start.lease();
  ReportKept(&agent_, fenced, 1, {4});
  EXPECT_THAT(Kept(job), ElementsAre("1:3", "1:4")) << "of an epoch that is over";
  ReportKept(&agent_, lease, 1, {4});
  EXPECT_THAT(Kept(job), ElementsAre("1:4"));
  Report(&agent_, lease, [](v1::Telemetry* fact) { fact->mutable_earlier_removed(); });
  EXPECT_THAT(Kept(job), ElementsAre("1:4")) << "the job goes on from it";
  EXPECT_TRUE(Commit(&agent_, lease, 6).commit());
  EXPECT_TRUE(Commit(&agent_, lease, 8).commit());
  ReportKept(&agent_, lease, 2, {6, 8});
  EXPECT_THAT(Kept(job), ElementsAre("1:4", "2:6", "2:8"));
  Report(&agent_, lease, [](v1::Telemetry* fact) { fact->mutable_earlier_removed(); });
  EXPECT_THAT(Kept(job), ElementsAre("2:6", "2:8"));
  EXPECT_EQ(Get(job).committed_step(), 8);
}

using Json = nlohmann::json;

// What the server says on standard error of a job: whoever follows one attempt, or one worker, finds all of it by the fields.
class ServerLogTest : public FleetTest {
 protected:
  void SetUp() override {
    SetLogSink([this](std::string_view line) {
      const MutexLock lock(mutex_);
      lines_.push_back(Json::parse(line));
    });
    FleetTest::SetUp();
  }
  void TearDown() override {
    FleetTest::TearDown();
    SetLogSink(nullptr);
  }
  // The first line that has this in its message; null: none.
  Json Line(const std::string& part) {
    const MutexLock lock(mutex_);
    for (const Json& line : lines_) {
      if (line["message"].get<std::string>().find(part) != std::string::npos) return line;
    }
    ADD_FAILURE() << "no line says: " << part;
    return Json();
  }
  void ExpectAbout(const Json& line, const std::string& job, int64_t attempt, const std::string& worker) {
    EXPECT_EQ(line.value("job", ""), job) << line;
    EXPECT_EQ(line.value("attempt", 0), attempt) << line;
    EXPECT_EQ(line.value("epoch", 0), attempt) << line;
    EXPECT_EQ(line.value("worker", ""), worker) << line;
  }

 private:
  Mutex mutex_;
  std::vector<Json> lines_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(ServerLogTest, LinesOfAnAttemptSayItsJobNumberEpochAndWorker) {
  Connect(&agent_);
  EXPECT_EQ(Line("has connected").value("worker", ""), "workers/a");
  const std::string job = Submit(2);
  v1::LeaseId lease = agent_.link.NextStart().lease();
  EXPECT_EQ(Line("ranks recipes").value("job", ""), job);
  EXPECT_EQ(Line("ranks recipes").value("worker", ""), "workers/a");
  EXPECT_FALSE(Line("ranks recipes").contains("attempt")) << "there is none yet";
  ExpectAbout(Line("leased"), job, 1, "workers/a");
  ReportEnd(&agent_, lease, absl::UnavailableError("rank 1 died"));
  lease = agent_.link.NextStart().lease();
  EXPECT_TRUE(Commit(&agent_, lease, 4).commit());
  ExpectAbout(Line("step 4 is committed"), job, 2, "workers/a");
  StopController();
  StartController();  // it knows the attempt from the store
  *agent_.hello.add_leases() = lease;
  Connect(&agent_);
  EXPECT_TRUE(Commit(&agent_, lease, 5).commit());
  ExpectAbout(Line("step 5 is committed"), job, 2, "workers/a");
  controller_->Disconnected(agent_.session);
  EXPECT_EQ(Line("has disconnected").value("worker", ""), "workers/a");
  skew_seconds_ = 1100;
  AwaitState(job, v1::RESTARTING);
  ExpectAbout(Line("the lease has expired"), job, 2, "workers/a");
}

}  // namespace
}  // namespace legoai::server
