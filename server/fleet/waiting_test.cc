// Jobs that wait: what is said of them, and what that costs.
#include <gmock/gmock.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

using testing::HasSubstr;
using namespace v1;  // the states' names

constexpr int64_t kMany = 10'000;

class WaitingTest : public FleetTest {
 protected:
  // Jobs for two slots, as the next controller finds them.
  std::vector<std::string> InsertMany(v1::JobState state) {
    StopController();
    std::vector<v1::Job> jobs;
    std::vector<std::string> names;
    for (int64_t i = 0; i < kMany; ++i) {
      v1::Job& job = jobs.emplace_back(MakeJob(2, 2));
      job.set_state(state);
      if (state == QUEUED) job.set_world_size(2);
      names.push_back(job.name());
    }
    Insert(jobs);
    StartController();
    return names;
  }
  // Every change of a stored job gives it the next version; all began with 1.
  int64_t RowsWritten(const std::vector<std::string>& names) {
    int64_t rows = 0;
    for (const std::string& name : names) rows += Get(name).version() - 1;
    return rows;
  }
};

TEST_F(WaitingTest, ReasonsOfTenThousandSubmittedJobsAreExactAndNeverStored) {
  const std::vector<std::string> jobs = InsertMany(SUBMITTED);
  AwaitReason(jobs.back(), "no worker of pool default");
  const int64_t writes = store_->writes;
  constexpr int kTimes = 4;
  for (int i = 0; i < kTimes; ++i) {
    TestAgent agent("a", 1);
    Connect(&agent);
    AwaitReason(jobs.back(), "resources.min_slots is 2 and the largest worker of pool default has 1 slot;");
    AwaitReason(jobs.front(), "connect a worker with at least 2 slots");
    controller_->Disconnected(agent.session);
    AwaitReason(jobs.back(), "no worker of pool default is connected and ready: start an agent");
  }
  EXPECT_EQ(store_->writes - writes, kTimes) << "one for each connection";
  EXPECT_EQ(RowsWritten(jobs), 0);
}

TEST_F(WaitingTest, PlacesOfTenThousandQueuedJobsAreExactAndNeverStored) {
  const std::vector<std::string> jobs = InsertMany(QUEUED);
  TestAgent agent("a");
  Connect(&agent);
  constexpr int kRun = 4;
  for (int i = 0; i < kRun; ++i) {
    const v1::LeaseId lease = agent.link.NextStart().lease();
    EXPECT_EQ(lease.job(), jobs[i]);
    Await(jobs.back(), [&](const v1::Job& now) { return now.queue_position() == kMany - 1 - i; });
    EXPECT_THAT(Get(jobs[5000]).reason(), HasSubstr(absl::StrCat("position ", 5000 - i)));
    ReportEnd(&agent, lease, absl::OkStatus());
  }
  agent.link.NextStart();
  Await(jobs.back(), [&](const v1::Job& now) { return now.queue_position() == kMany - 1 - kRun; });
  EXPECT_EQ(RowsWritten({jobs.begin() + kRun + 1, jobs.end()}), 0);
  EXPECT_EQ(RowsWritten({jobs.begin(), jobs.begin() + kRun}), 2 * kRun) << "each was leased and ended";
}

TEST_F(WaitingTest, AJobThatFitsNoWorkerAnyMoreSaysWhichFieldForbidsFewer) {
  TestAgent large("a", 4), small("b", 2);
  const std::string job = Submit(4, 4);
  Connect(&large);
  ReportStep(&large, large.link.NextStart().lease(), 1);
  controller_->Disconnected(large.session);
  skew_seconds_ = 1100;
  AwaitState(job, RESTARTING);
  Connect(&small);
  AwaitReason(job, "resources.min_slots is 4 and the largest worker of pool default has 2 slots");
  const v1::Job waits = Get(job);
  EXPECT_THAT(waits.reason(), HasSubstr("nothing was heard of workers/a"));
  EXPECT_THAT(waits.reason(), HasSubstr("connect a worker with at least 4 slots, or cancel the job"));
  EXPECT_EQ(waits.queue_position(), 1);
  EXPECT_EQ(Plans(job), 1);
}

TEST_F(WaitingTest, APlanForFewerSlotsThatFitsNothingIsNotMadeAgainUntilOtherSlotsAreThere) {
  TestAgent large("a", 8), small("b", 2), middle("c", 4);
  const std::string job = Submit(8, 2);
  Connect(&large);
  EXPECT_TRUE(Commit(&large, large.link.NextStart().lease(), 3).commit());
  largest_world_ = 0;
  controller_->Disconnected(large.session);
  skew_seconds_ = 1100;
  AwaitState(job, RESTARTING);
  Connect(&small);
  AwaitReason(job, "it waits for a worker with 8 slots, or for other slots to be planned for");
  EXPECT_THAT(Get(job).reason(), HasSubstr("for 2, no recipe fits"));
  for (int i = 0; i < 5; ++i) AwaitDecision();
  EXPECT_EQ(Plans(job), 2) << "the first, and once for two slots";
  EXPECT_EQ(Get(job).state(), RESTARTING);
  largest_world_ = 64;
  Connect(&middle);
  EXPECT_EQ(middle.link.NextStart().world_size(), 4);
  EXPECT_EQ(Plans(job), 3);
}

}  // namespace
}  // namespace legoai::server
